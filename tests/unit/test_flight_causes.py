"""Steps in flight: what moves state otherwise than by a lost or an extra update."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from flights import (
    BIAS,
    COUNTER,
    MOMENTUM,
    SLOT,
    TALLY,
    VELOCITY,
    Simulated,
    make_pair,
    make_trace,
)

from distbench.compare.envelope import list_envelopes
from distbench.diagnose.flight import judge_flight
from distbench.trace import TraceKey


@pytest.mark.parametrize(
    ("shared", "is_told"), [(0.0, True), (0.1, False)], ids=["by-itself", "by-counter"]
)
def test_what_moves_twice_as_far_by_a_wrong_counter_did_not_come_twice(
    shared: float, is_told: bool
) -> None:
    """A rule that asks for the counter moves all elements otherwise without a step."""
    ones, parts = np.ones(2), np.eye(2)
    moved = [part + shared * (ones - part) for part in parts]
    flight = make_pair(
        {COUNTER: np.array(2.0), TALLY: ones},
        [{COUNTER: np.array(1.0), TALLY: own} for own in moved],
        {COUNTER: np.array(0.0), TALLY: ones + moved[0]},
        torn=[COUNTER],
    )
    codes = [finding.code for finding in judge_flight(flight).findings]
    assert ("extra-update" in codes, "iterations-wrong" in codes) == (is_told, True)


@pytest.mark.parametrize("momentum", [0.0, MOMENTUM], ids=["commutes", "does-not"])
@pytest.mark.parametrize("factor", [0.5, 1 / 3, 2.5, 1 / 16, 1 / 64, -1.0])
def test_a_factor_of_every_step_is_no_step_that_is_lost(
    factor: float, momentum: float
) -> None:
    flight = Simulated(momentum=momentum).observe()
    scaled = {
        e.key.at(0): (e.start + factor * (e.observed - e.start)).astype(np.float32)
        for e in list_envelopes(flight)
        if e.phase in ("variable", "slot")
    }
    values = {**flight.observed.values, **scaled}
    object.__setattr__(flight.observed, "values", values)
    [finding] = judge_flight(flight).findings
    assert (finding.code, finding.phase, finding.step) == ("scale-error", "variable", 0)
    assert finding.ratio == pytest.approx(factor, rel=0.05)


@pytest.mark.parametrize("left", [0, 1], ids=["all", "all-but-one"])
@pytest.mark.parametrize("momentum", [0.0, MOMENTUM], ids=["commutes", "does-not"])
def test_steps_that_are_lost_have_no_factor(momentum: float, left: int) -> None:
    """Nearly all of the error is explained by 0 times each step."""
    lost = range(left, 16)
    times = dict.fromkeys([*lost, *(16 + place for place in lost)], 0)
    rounds = Simulated(momentum=momentum, in_flight=16, times=times, counted=times)
    found = judge_flight(rounds.observe()).findings
    assert "scale-error" not in [finding.code for finding in found]
    [lacks] = [finding for finding in found if finding.phase == "variable"]
    assert lacks.code == "lost-update"


@pytest.mark.parametrize(("moved", "is_told"), [(0.0, True), (0.4, False)])
def test_what_follows_from_a_wrong_counter_is_no_lost_update(
    moved: float, is_told: bool
) -> None:
    """A rule whose rate the counter decides moves less or more, by no whole step."""
    ones, parts = np.ones(2), np.eye(2)
    flight = make_pair(
        {COUNTER: np.array(2.0), TALLY: ones},
        [{COUNTER: np.array(1.0), TALLY: part} for part in parts],
        {COUNTER: np.array(0.0), TALLY: ones - (1 - moved) * parts[0]},
        torn=[COUNTER],
    )
    codes = [finding.code for finding in judge_flight(flight).findings]
    assert ("lost-update" in codes, "iterations-wrong" in codes) == (is_told, True)


@pytest.mark.parametrize("led", [[], [TALLY]], ids=["by-itself", "by-velocity"])
def test_what_takes_from_a_velocity_that_is_read_again_follows_from_it(
    led: list[str],
) -> None:
    """Two steps write it, then both move the weights by what the second one wrote."""
    both = np.full(4, 1.0, np.float32)
    parts = [np.array([1, 1, 0, 0], np.float32), np.array([0, 0, 1, 1], np.float32)]
    flight = make_pair(
        {VELOCITY: both, TALLY: both, BIAS: both},
        [{VELOCITY: part, TALLY: part, BIAS: part} for part in parts],
        {VELOCITY: both - parts[0], TALLY: 2 * parts[1], BIAS: both},
        torn=[VELOCITY],
        led=led,
    )
    findings = judge_flight(flight).findings
    assert findings[0].code == "lost-update"
    named = {name for finding in findings for name in finding.variables}
    assert named == ({VELOCITY} if led else {VELOCITY, TALLY})


def test_a_step_that_all_variables_lack_is_told_of_what_takes_from_others_too() -> None:
    both = np.full(4, 1.0, np.float32)
    parts = [np.array([1, 1, 0, 0], np.float32), np.array([0, 0, 1, 1], np.float32)]
    paths = (VELOCITY, TALLY, BIAS)
    flight = make_pair(
        dict.fromkeys(paths, both),
        [dict.fromkeys(paths, part) for part in parts],
        dict.fromkeys(paths, parts[1]),
        torn=[VELOCITY],
        led=[TALLY],
    )
    [finding] = judge_flight(flight).findings
    assert finding.code == "lost-update"
    assert set(finding.variables) == set(paths)


@pytest.mark.parametrize(
    ("torn", "share", "is_stale"),
    [([SLOT], 1.0, True), ([SLOT], 0.8, False), ([], 1.0, False)],
    ids=["adds-of-older", "by-something-else", "by-one-op"],
)
def test_what_older_values_explain_wholly_is_a_stale_read(
    torn: list[str], share: float, is_stale: bool
) -> None:
    """Both halve the slot, then both take away the half of what was there before."""
    start, decay = np.array([4.0, 8.0]), 0.5
    gradients = np.eye(2)

    def add(read: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        return (1 - decay) * (gradient - read)

    first = start + add(start, gradients[0])
    base = first + add(first, gradients[1])
    stale = start + sum(add(start, own) for own in gradients)
    flight = make_pair(
        {SLOT: base},
        [{SLOT: base - (start + add(start, own))} for own in gradients[::-1]],
        {SLOT: base + share * (stale - base)},
        torn=torn,
    )
    flight = replace(flight, stale=(make_trace("stale", [{SLOT: stale}]),))
    [finding] = judge_flight(flight).findings
    assert (finding.code == "stale-read") == is_stale
    if is_stale:
        assert (finding.phase, finding.step) == ("slot", 1)
        assert "made of an older value of it" in finding.explanation
        assert finding.confidence == pytest.approx(1.0)


def test_one_unit_in_the_last_place_is_seen_where_no_order_matters() -> None:
    flight = Simulated().observe()
    changed = {
        key: np.nextafter(value, np.float32(9)) if key.variable == TALLY else value
        for key, value in flight.observed.values.items()
    }
    object.__setattr__(flight.observed, "values", changed)
    judgement = judge_flight(flight)
    assert [finding.code for finding in judgement.findings] == ["unexplained"]


def test_what_no_step_explains_is_told_of_the_first_round_that_shows_it() -> None:
    flight = Simulated(rounds=3).observe()
    key = TraceKey(step=1, phase="variable", variable=TALLY, replica=0)
    changed = np.nextafter(flight.observed.values[key], np.float32(9))
    values = {**flight.observed.values, key: changed}
    observed = replace(flight.observed, values=values)
    [finding] = judge_flight(replace(flight, observed=observed)).findings
    assert (finding.code, finding.step) == ("unexplained", flight.in_flight)
    assert finding.explanation.startswith(f"Step {flight.in_flight} and after it")


@pytest.mark.parametrize(
    ("times", "counted", "codes"),
    [
        ({}, {1: 2}, ["iterations-wrong"]),
        ({4: 0}, {4: 0}, ["lost-update"]),
        ({4: 0}, {}, ["lost-update"]),
        ({4: 2}, {4: 2}, ["extra-update"]),
    ],
    ids=["counted-twice", "skipped", "lost-but-counted", "ran-twice"],
)
def test_the_counter_is_held_against_the_steps_that_took_place(
    times: dict[int, int], counted: dict[int, int], codes: list[str]
) -> None:
    flight = Simulated(times=times, counted=counted).observe()
    findings = judge_flight(flight).findings
    assert [finding.code for finding in findings] == codes


@pytest.mark.parametrize(
    ("beside", "is_told"), [(0.0, True), (0.02, True), (0.2, False)]
)
def test_beside_a_wrong_counter_only_a_whole_step_is_a_lost_update(
    beside: float, is_told: bool
) -> None:
    """A rule that the counter leads may move nearly as if a step were not there."""
    ones, parts = np.ones(8), np.eye(8)
    flight = make_pair(
        {COUNTER: np.array(2.0), TALLY: ones},
        [{COUNTER: np.array(1.0), TALLY: part} for part in (parts[0], parts[1])],
        {COUNTER: np.array(0.0), TALLY: ones - parts[0] + beside * parts[5]},
        torn=[COUNTER],
    )
    codes = [finding.code for finding in judge_flight(flight).findings]
    assert ("lost-update" in codes, "iterations-wrong" in codes) == (is_told, True)
