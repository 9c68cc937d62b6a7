"""What moves is told before it fails; what only varies is not."""

from __future__ import annotations

import math

import pytest
from imported_scripts import import_scripts
from night_samples import MACHINE, make_night, make_row, play_nights

from distbench.errors import BadInputError
from distbench.history.drift import Drift, find_drifts, find_flaky
from distbench.history.limits import Limits
from distbench.verdict import Status

USUAL = Limits()
with import_scripts("played_nights") as scripts:
    draw_nights = scripts["played_nights"].draw_nights


def give_errors(*values: float | None, status: Status = Status.PASS) -> list[Drift]:
    rows = [make_row(error_over_bound=value, status=status) for value in values]
    return list(find_drifts(play_nights({"s": rows}), USUAL))


def give_times(*values: float, limits: Limits = USUAL) -> list[Drift]:
    rows = [make_row(seconds=value) for value in values]
    return list(find_drifts(play_nights({"s": rows}), limits))


def test_an_error_of_twice_its_median_is_told() -> None:
    [drift] = give_errors(0.1, 0.11, 0.1, 0.09, 0.1, 0.21)
    assert drift.what == "error/bound"
    assert (drift.before, drift.now, drift.runs) == (pytest.approx(0.1), 0.21, 5)
    assert drift.ratio == pytest.approx(2.1)


@pytest.mark.parametrize(
    "values",
    [
        (0.1, 0.1, 0.1, 0.1, 0.1, 0.19),
        (0.1, 0.1, 0.1, 0.1, 0.4),  # too few to say
        (0.1, 0.3, 0.05, 0.25, 0.1, 0.3),  # it always varies so
        (0.0, 0.0, 0.0, 0.0, 0.0, 0.4),
        (0.1, 0.1, 0.1, 0.1, 0.1, math.inf),
        (0.1, 0.1, 0.1, 0.1, 0.1, None),
        (0.4, 0.4, 0.4, 0.4, 0.4, 0.1),  # better
    ],
    ids=["less", "few", "varies", "zero", "infinite", "none", "better"],
)
def test_other_errors_are_not_told(values: tuple[float | None, ...]) -> None:
    assert not give_errors(*values)


def test_what_fails_is_no_drift() -> None:
    assert not give_errors(0.1, 0.1, 0.1, 0.1, 0.1, 0.9, status=Status.FAIL)


def test_two_slow_runs_are_told_and_one_is_not() -> None:
    assert not give_times(4, 4.1, 3.9, 4, 4, 4, 9)
    [drift] = give_times(4, 4.1, 3.9, 4, 4, 8, 9)
    assert (drift.what, drift.before, drift.now) == ("seconds", 4, 8)
    assert drift.ratio == pytest.approx(2.0)


def test_one_slow_run_is_told_where_one_is_asked_for() -> None:
    assert give_times(4, 4.1, 3.9, 4, 4, 9, limits=Limits(confirm=1))


def test_less_than_half_a_second_is_the_machines() -> None:
    assert not give_times(0.3, 0.3, 0.3, 0.3, 0.3, 0.6, 0.6)


@pytest.mark.first(1)
@pytest.mark.parametrize("sigma", [0.05, 0.1, 0.2])
def test_noise_alone_is_no_drift(sigma: float) -> None:
    """600 runs: a noisy machine whose nights differ, and a run in 50 takes thrice."""
    told = [
        drift
        for seed in range(20)
        for drift in find_drifts(
            draw_nights(seed, 20, 30, sigma=sigma, night_sigma=0.3, spike=0.02), USUAL
        )
    ]
    assert len(told) <= 1


def test_a_planted_drift_is_told_on_a_noisy_machine() -> None:
    def slow(scenario: int, night: int) -> float:
        return 2.0 if scenario == 7 and night >= 18 else 1.0

    told = [
        find_drifts(
            draw_nights(seed, 20, 30, sigma=0.1, night_sigma=0.3, slow=slow), USUAL
        )
        for seed in range(20)
    ]
    caught = [[drift.key.scenario for drift in one if drift.key] for one in told]
    assert all(set(names) <= {"s7"} for names in caught)
    assert sum(names == ["s7"] for names in caught) >= 19


def test_a_night_that_is_slower_as_a_whole_is_told_once() -> None:
    def slow(scenario: int, night: int) -> float:
        return 1.8 if night >= 18 else 1.0

    [drift] = find_drifts(draw_nights(1, 20, 30, sigma=0.05, slow=slow), USUAL)
    assert drift.key is None
    assert drift.ratio == pytest.approx(1.8, rel=0.1)


def test_a_slow_creep_is_told() -> None:
    assert give_times(*(4 * 1.07**night for night in range(20)))


def test_an_upgrade_in_between_is_named() -> None:
    nights = play_nights({"s": [make_row(error_over_bound=e) for e in [0.1] * 5 + [1]]})
    old = {**MACHINE, "tensorflow": "2.20.0"}
    nights = [make_night(*n.rows, environment=old) for n in nights[:-1]] + nights[-1:]
    [drift] = find_drifts(nights, USUAL)
    assert drift.upgrade == "tensorflow 2.20.0 -> 2.21.0"


def test_only_what_ran_last_night_is_told() -> None:
    rows = [make_row(error_over_bound=value) for value in (0.1,) * 5 + (0.9,)]
    assert not find_drifts(play_nights({"s": [*rows, None]}), USUAL)
    assert find_drifts([], USUAL) == ()


def give_statuses(text: str) -> list[float]:
    """`.` passes, `x` fails, `s` is skipped, a space did not run."""
    kinds = {".": Status.PASS, "x": Status.FAIL, "s": Status.SKIPPED}
    rows = [make_row(status=kinds[c]) if c in kinds else None for c in text]
    return [
        one.failed / one.runs for one in find_flaky(play_nights({"s": rows}), USUAL)
    ]


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("...x...", [1 / 7]),
        ("x.x.x.x.", [0.5]),
        ("xxx.xxx", [6 / 7]),
        ("." * 18 + "x.", [0.05]),
        ("......", []),
        ("xxxxxx", []),
        (".....x", []),  # broken tonight
        ("xxx...", []),  # mended
        (".x.x", []),  # too few to say
        ("..s.s.s", []),
        (". .x . .", [0.2]),
        ("x." + "." * 19, []),  # out of the window
    ],
)
def test_what_fails_now_and_then_is_flaky(text: str, shares: list[float]) -> None:
    assert give_statuses(text) == pytest.approx(shares)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"error_ratio": 1.0}, "error_ratio must be more than 1"),
        ({"time_ratio": math.nan}, "time_ratio must be more than 1"),
        ({"window": 6}, "The last 7 nights or more must be looked at"),
        ({"confirm": 0}, "confirm must be 1 or more"),
        ({"flaky": (0.9, 0.1)}, "flaky must be two shares"),
    ],
)
def test_limits_that_cannot_be_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        Limits(**changes)


@pytest.mark.parametrize(("scenarios", "is_nights"), [(7, False), (8, True)])
def test_what_few_scenarios_have_in_common_is_not_the_nights(
    scenarios: int, is_nights: bool
) -> None:
    """They may all be slower by a fault of their own."""
    times = [4.0] * 5 + [8.0] * 2
    lines = {
        f"s{n}": [make_row(f"s{n}", seconds=value) for value in times]
        for n in range(scenarios)
    }
    told = [drift.key for drift in find_drifts(play_nights(lines), USUAL)]
    assert len(told) == (1 if is_nights else scenarios)
    assert (told == [None]) is is_nights
