"""Steps in flight: every possible order passes; lost and extra updates are named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from flights import MOMENTUM, SLOT, TALLY, Simulated, make_pair, make_trace

from distbench.compare.envelope import Envelope, list_envelopes
from distbench.diagnose.flight import judge_flight
from distbench.diagnose.flight.counting import count_updates
from distbench.diagnose.names import name_steps
from distbench.flight import Flight
from distbench.trace import WHOLE, Trace, TraceKey, VariableInfo
from distbench.verdict import Status
from distbench.worker.taps.given import select_state


@pytest.mark.parametrize("momentum", [0.0, MOMENTUM], ids=["commutes", "does-not"])
@pytest.mark.parametrize("seed", range(5))
def test_every_possible_order_passes(momentum: float, seed: int) -> None:
    judgement = judge_flight(Simulated(momentum=momentum).observe(seed))
    assert judgement.status is Status.PASS, judgement
    assert judgement.findings == ()
    assert judgement.checked == 6


@pytest.mark.parametrize("momentum", [0.0, MOMENTUM], ids=["commutes", "does-not"])
@pytest.mark.parametrize(
    ("times", "code", "step"),
    [
        ({5: 0}, "lost-update", 5),
        ({1: 0, 6: 0}, "lost-update", 1),
        ({2: 2}, "extra-update", 2),
    ],
    ids=["lost", "two-lost", "extra"],
)
def test_it_is_named_which_steps_are_lost_or_extra(
    momentum: float, times: dict[int, int], code: str, step: int
) -> None:
    flight = Simulated(momentum=momentum, times=times).observe()
    [finding] = judge_flight(flight).findings
    assert (finding.code, finding.phase, finding.step) == (code, "variable", step)
    assert finding.variables == (TALLY,)
    for wrong in times:
        assert f"{wrong}" in finding.explanation.partition("(and")[0]
    outcome = finding.outcome
    assert (outcome is None) == (momentum > 0)  # there no number is due
    if outcome is not None:
        assert (outcome.variable, outcome.index) == (TALLY, 0)
        assert outcome.observed != outcome.expected
    assert finding.confidence > (0.99 if momentum == 0 else 0.4)


def test_how_often_an_extra_update_came_is_told() -> None:
    flight = Simulated(times={3: 4}).observe()
    [finding] = judge_flight(flight).findings
    assert "up to 4 times" in finding.explanation


@pytest.mark.parametrize(
    ("torn", "phases"),
    [
        ([SLOT], ["slot"]),
        ([SLOT, TALLY], ["slot", "variable"]),
        ([], ["slot", "variable"]),
    ],
    ids=["slots-alone", "both", "neither"],
)
def test_variables_that_are_changed_in_place_follow_from_their_slots(
    torn: list[str], phases: list[str]
) -> None:
    ones, parts = np.ones(2), np.eye(2)
    flight = make_pair(
        {SLOT: ones, TALLY: ones},
        [{SLOT: part, TALLY: part} for part in parts],
        {SLOT: ones - parts[0], TALLY: ones - parts[1]},
        torn=torn,
    )
    findings = judge_flight(flight).findings
    assert [finding.phase for finding in findings] == phases
    assert {finding.code for finding in findings} == {"lost-update"}


@pytest.mark.parametrize("momentum", [0.1, MOMENTUM])
@pytest.mark.parametrize("size", [0.05, 1.0, 10.0])
def test_what_follows_from_state_that_no_step_explains_is_told_all_the_same(
    momentum: float, size: float
) -> None:
    """A step comes twice, and the slot that it leaves is nobody's."""
    flight = Simulated(momentum=momentum, rounds=1, times={1: 2}).observe()
    key = TraceKey(step=0, phase="slot", variable=SLOT, replica=0)
    noise = np.random.default_rng(0).normal(size=4).astype(np.float32)
    slot = flight.observed.values[key] + size * noise
    flight = replace(
        flight,
        observed=replace(flight.observed, values={**flight.observed.values, key: slot}),
        starts=replace(flight.starts, notes={"torn": [SLOT]}),
    )
    assert any(e.wrong.any() for e in list_envelopes(flight))
    judgement = judge_flight(flight)
    assert judgement.status is Status.FAIL, judgement
    assert judgement.findings


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "steps", [(3,), (1, 2, 4), (7, 9, 10, 13, 14)], ids=["one", "several", "most"]
)
def test_what_a_slot_lacks_has_not_decayed_what_it_has(
    steps: tuple[int, ...], seed: int
) -> None:
    """Each step halves what the slot has: without three of them it is eight times."""
    flight = Simulated(momentum=MOMENTUM, in_flight=8, overwritten=steps)
    [finding] = judge_flight(flight.observe(seed)).findings
    assert (finding.code, finding.phase) == ("lost-update", "slot")
    assert f"lacks the updates of {name_steps(steps)}" in finding.explanation
    assert finding.confidence > 0.9


@pytest.mark.parametrize(
    ("torn", "more"), [([TALLY], 0.2), ([], 1.0)], ids=["torn", "in-place"]
)
def test_what_weighs_more_without_another_step_did_not_come_twice(
    torn: list[str], more: float
) -> None:
    ones, parts = np.ones(2), np.eye(2)
    flight = make_pair(
        {TALLY: ones},
        [{TALLY: part} for part in parts],
        {TALLY: ones - parts[0] + more * parts[1]},
        torn=torn,
    )
    [finding] = judge_flight(flight).findings
    assert finding.code == "lost-update"
    assert ("in the place of" in finding.explanation) == (not torn)


def test_a_pass_says_what_the_orders_may_hide() -> None:
    flight = Simulated().observe()
    starts = replace(flight.starts, notes={"torn": [TALLY]})
    judgement = judge_flight(replace(flight, starts=starts))
    assert judgement.status is Status.PASS
    assert "reads its variable by one op and writes it by another" in judgement.message


def test_a_step_that_only_chances_to_point_there_is_not_counted() -> None:
    """Of an order's own noise another step takes a part away, and not nearly all."""
    base, own = np.array([1.0, 1.0, 1.0]), np.array([1.0, 1.0, 0.1])
    noise, other = np.array([0.0, 0.1, 0.1]), np.array([0.1, 0.1, 0.1])

    def make(value: np.ndarray, replica: int = WHOLE) -> Trace:
        return make_trace("x", [{TALLY: value}], replica=replica)

    changes = {0: own, 1: other}
    flight = Flight(
        tier="bounded",
        in_flight=2,
        observed=make(base + own + noise, 0),
        starts=make_trace("starts", [{TALLY: base}], initial={TALLY: base * 0}),
        orders=(make(base),),
        lost={place: make(base - change) for place, change in changes.items()},
        again={place: make(base + change) for place, change in changes.items()},
    )
    [envelope] = list_envelopes(flight)
    assert count_updates(flight, envelope).extra == {0: 1}
    two = make(base + own + 20 * noise, 0)
    flight = replace(
        flight, observed=two, again={0: make(base + own), 1: make(base + 20 * noise)}
    )
    [envelope] = list_envelopes(flight)
    assert count_updates(flight, envelope).extra == {0: 1, 1: 1}


@pytest.mark.parametrize(
    ("times", "codes"),
    [
        ({1: 0, 2: 2}, ["lost-update"]),
        ({1: 0, 2: 0, 3: 3, 5: 2, 6: 0}, ["lost-update"]),
        ({1: 0, 2: 2, 6: 2}, ["lost-update", "extra-update"]),
    ],
    ids=["one", "several", "more-than-lost"],
)
def test_an_update_in_the_place_of_another_is_one_mistake(
    times: dict[int, int], codes: list[str]
) -> None:
    findings = judge_flight(Simulated(times=times).observe()).findings
    assert [finding.code for finding in findings] == codes
    is_swapped = "in the place of those of step" in findings[0].explanation
    assert is_swapped == (len(codes) == 1)


def test_steps_that_change_nothing_prove_nothing() -> None:
    judgement = judge_flight(Simulated(gradient=0.0).observe())
    assert judgement.status is Status.VACUOUS
    assert "gradients that are not 0" in judgement.message


def test_a_step_that_the_orders_hide_is_undecidable() -> None:
    # What the first of ten steps left is multiplied nine times, what the last left is
    # not: its elements may lie anywhere between.
    flight = Simulated(momentum=0.6, in_flight=10, beside=10).observe(orders=200)
    judgement = judge_flight(flight)
    assert judgement.status is Status.UNDECIDABLE
    assert "another order" in judgement.message


def test_the_age_of_what_each_step_read_is_told() -> None:
    flight = Simulated(beside=2, rounds=1).observe()
    assert flight.staleness == (0, 1, 0, 1)
    assert "2 steps saw that" in judge_flight(flight).message
    alone = Simulated(beside=1, rounds=1).observe()
    assert "no race could show" in judge_flight(alone).message


def test_what_is_told_is_the_element_that_is_farthest_off_for_itself() -> None:
    # The first may be anything up to 10 and lies far from the middle, but within.
    envelope = Envelope(
        round=0,
        phase="variable",
        variable="x",
        observed=np.array([9.5, 1.5]),
        start=np.zeros(2),
        middle=np.array([5.0, 1.0]),
        low=np.array([0.0, 0.9]),
        high=np.array([10.0, 1.1]),
    )
    assert envelope.wrong.tolist() == [False, True]
    assert envelope.error == pytest.approx(0.5)
    assert envelope.bound == pytest.approx(0.1)


@pytest.mark.parametrize("is_shared", [False, True])
def test_what_exists_once_is_given_back_before_each_round(is_shared: bool) -> None:
    """A metric would else carry what one round left over into the next."""
    own = VariableInfo(
        path="mean/total",
        role="variable",
        shape=(),
        dtype="float32",
        synchronised=False,
    )
    key = TraceKey(step=0, phase="variable", variable=own.path, replica=WHOLE)
    starts = Trace(
        name="starts",
        replicas=1,
        shards=(4,),
        variables=(own,),
        values={key: np.float32(2.5)},
    )
    given = select_state(starts, "bounded", 1, is_shared=is_shared)
    assert given == ({own.path: 2.5} if is_shared else {})
