"""What changed between two nights, and what of it is worse."""

from __future__ import annotations

import pytest
from night_samples import MACHINE, make_key, make_night, make_row

from distbench.history.changes import (
    compare_environments,
    compare_nights,
    gather_latest,
)
from distbench.history.limits import Limits
from distbench.history.night import Cause, Row
from distbench.verdict import Status


def fail(code: str = "missing-reduction", phase: str = "slot", variable: str = "w"):
    cause = Cause(code=code, phase=phase, variable=variable)
    return {"status": Status.FAIL, "causes": (cause,), "error_over_bound": 1e5}


FAIL = fail()


def compare(old: Row | None, new: Row | None, **limits):
    nights = [make_night(*([row] if row else [])) for row in (old, new)]
    return compare_nights(*nights, Limits(**limits))


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ({}, FAIL, "new failure"),
        ({}, {"status": Status.ERROR}, "new failure"),
        ({"status": Status.UNDECIDABLE}, FAIL, "new failure"),
        (None, FAIL, "new failure"),
        ({**FAIL, "quarantined": True}, FAIL, "new failure"),  # the entry ended
        (FAIL, {"status": Status.ERROR}, "other cause"),
        (FAIL, fail(code="raises"), "other cause"),
        (FAIL, fail(phase="variable"), "other cause"),
        (FAIL, fail(variable="b"), "other cause"),
        ({}, {"status": Status.UNDECIDABLE}, "worse"),
        ({}, {"status": Status.SKIPPED}, "worse"),
        ({}, {"error_over_bound": 0.5}, "nearer to its bound"),
        ({}, {"seconds": 6.0}, "slower"),
    ],
)
def test_what_is_worse_is_told(old: dict | None, new: dict, kind: str) -> None:
    found = compare(None if old is None else make_row(**old), make_row(**new))
    assert [change.kind for change in found.changes] == [kind]
    assert found.is_worse


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        ({}, {}, []),
        (FAIL, FAIL, []),
        (FAIL, {}, ["fixed"]),
        ({"status": Status.UNDECIDABLE}, {}, ["fixed"]),
        ({"status": Status.SKIPPED}, {}, ["better"]),
        (FAIL, {"status": Status.UNDECIDABLE}, ["better"]),
        ({"status": Status.SKIPPED}, {"status": Status.REFUSED}, []),
        (FAIL, {"status": Status.SKIPPED}, ["gone"]),
        ({"status": Status.UNDECIDABLE}, {"status": Status.REFUSED}, ["gone"]),
        ({}, {**FAIL, "quarantined": True}, ["quarantined"]),
        ({**FAIL, "quarantined": True}, {**FAIL, "quarantined": True}, []),
        ({**FAIL, "quarantined": True}, {}, ["fixed"]),
        ({}, {"error_over_bound": 0.49}, []),
        ({}, {"error_over_bound": 0.1}, ["farther from its bound"]),
        ({"error_over_bound": 0.0}, {"error_over_bound": 0.5}, []),
        ({"error_over_bound": None}, {"error_over_bound": 0.5}, []),
        ({}, {"seconds": 5.9}, []),
        ({}, {"seconds": 2.0}, ["faster"]),
        ({"seconds": 0.2}, {"seconds": 0.6}, []),  # less than half a second
        ({}, None, ["gone"]),
        (None, {}, ["new"]),
        (None, {"status": Status.SKIPPED}, ["new"]),
    ],
)
def test_what_is_not_worse(old: dict | None, new: dict | None, kinds: list) -> None:
    rows = [None if row is None else make_row(**row) for row in (old, new)]
    found = compare(*rows)
    assert [change.kind for change in found.changes] == kinds
    assert not found.is_worse


def test_ratios_are_options() -> None:
    rows = make_row(), make_row(error_over_bound=0.5, seconds=6.0)
    assert not compare(*rows, error_ratio=2.1, time_ratio=1.6).changes


def test_what_was_and_what_is_are_said() -> None:
    [change] = compare(make_row(), make_row(**FAIL)).changes
    assert (change.before, change.now) == (
        "pass",
        "fail: missing-reduction in slot of w",
    )
    [change] = compare(make_row(), make_row(seconds=8)).changes
    assert (change.before, change.now) == ("4.0 s", "8.0 s (2 times)")
    error = make_row(status=Status.ERROR, message="no port\nmore")
    [change] = compare(make_row(), error).changes
    assert change.now == "error: no port"


def test_times_of_two_kinds_of_machine_are_not_compared() -> None:
    other = {**MACHINE, "machine": {"cpu": "b"}, "tensorflow": "2.22.0"}
    before = make_night(make_row())
    found = compare_nights(
        before, make_night(make_row(seconds=40), environment=other), Limits()
    )
    assert not found.changes
    assert not found.has_times
    assert ("tensorflow", "2.21.0", "2.22.0") in found.environment
    assert ("machine.cpu", "a", "b") in found.environment
    assert ("machine.cores", "2", "-") in found.environment
    untold = {"machine": MACHINE["machine"]}
    assert not compare_environments(MACHINE, untold)
    assert not compare_environments(untold, MACHINE)


def test_two_checkouts_of_one_target_are_compared() -> None:
    there = make_row(key=make_key(target="/elsewhere/adam.py:make"), seconds=9)
    found = compare(make_row(), there)
    assert [change.kind for change in found.changes] == ["slower"]
    another = make_row("sgd", key=make_key("sgd", target="sgd.py:make"))
    gone, new = compare(another, there).changes
    assert (gone.kind, gone.key.target) == ("gone", "sgd.py:make")
    assert (new.kind, new.key.target) == ("new", "/elsewhere/adam.py:make")
    several = make_night(make_row(), make_row(key=make_key(target="sgd.py:make")))
    found = compare_nights(several, make_night(there), Limits())
    assert found.common == 0


def test_the_last_run_of_each_may_be_of_another_night() -> None:
    nights = [
        make_night(make_row("a", seconds=1), make_row("b", seconds=1)),
        make_night(make_row("a", seconds=2), number=1),
    ]
    latest = gather_latest(nights, [make_key("a"), make_key("b"), make_key("c")])
    assert latest is not None
    assert {r.key.scenario: r.seconds for r in latest.rows} == {"a": 2, "b": 1}
    assert gather_latest([], [make_key("a")]) is None
