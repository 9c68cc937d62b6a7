"""Steps that are scheduled one by one, and of which some count twice, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from simulated_rule import Rule
from training_simulator import BIAS, KERNEL, TRAINED, Fault, observe

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, VariableInfo
from distbench.verdict import Finding

_TOLD = ("lost-update", "extra-update")
SGD, MOMENTUM = Rule(), Rule(name="momentum")


def find_first(
    times: Mapping[int, float],
    *,
    rule: Rule = SGD,
    scheduled: bool = True,
    slots_too: bool = False,
) -> Finding:
    """The first finding where the updates of some steps count otherwise.

    Args:
        times: How often they do, by step.
        rule: The optimizer.
        scheduled: Whether whole steps are scheduled.
        slots_too: Whether slots change as often, and not once.
    """

    def change(new, old, applied, run):
        count = times.get(run.step, 1)
        return {
            path: old[path] + value.dtype.type(count) * (value - old[path])
            if path in TRAINED or (slots_too and path != "iterations")
            else value
            for path, value in new.items()
        }

    evidence = observe(Fault(update=change), replicas=1, steps=4, rule=rule)
    subject = replace(evidence.subject, scheduled=scheduled)
    return judge(replace(evidence, subject=subject)).findings[0]


@pytest.mark.parametrize("times", [2, 3])
def test_a_step_that_counts_again_is_told(times: int) -> None:
    first = find_first({1: times})
    assert (first.code, first.phase, first.step) == ("extra-update", "variable", 1)
    assert set(first.variables) == set(TRAINED)
    assert first.ratio == times


@pytest.mark.parametrize("rule", [SGD, MOMENTUM], ids=["no-slots", "momentum"])
def test_a_step_that_does_not_count_is_told(rule: Rule) -> None:
    first = find_first({1: 0, 3: 0}, rule=rule, slots_too=True)
    phase = "slot" if rule is MOMENTUM else "variable"
    assert (first.code, first.phase, first.step) == ("lost-update", phase, 1)


@pytest.mark.parametrize(
    "times",
    [
        {1: 2, 2: 2, 3: 2},
        {0: 2, 1: 2, 2: 2, 3: 2},
        {3: 2},
        {1: 1.5},
        {0: 0, 1: 0, 2: 0, 3: 0},
    ],
    ids=["from-then-on", "always", "last", "no-whole-number", "never-at-all"],
)
def test_another_rate_is_no_matter_of_steps(times: Mapping[int, float]) -> None:
    assert find_first(times).code not in _TOLD


def test_what_slots_have_once_is_no_update_of_its_own() -> None:
    assert find_first({1: 2}, rule=MOMENTUM).code not in _TOLD


@pytest.mark.parametrize("count", [0, 2])
def test_steps_of_all_replicas_are_no_matter_of_one(count: int) -> None:
    assert find_first({1: count}, scheduled=False).code not in _TOLD


def add_count(
    evidence: Evidence, counts: Sequence[int], due: Sequence[int]
) -> Evidence:
    """The same with a count; each of its steps begins as one device left the last."""
    info = VariableInfo(
        path="count", role="variable", shape=(), dtype="int64", trainable=False
    )

    def add(trace: Trace, found: Sequence[int], replicas: Sequence[int]) -> Trace:
        values = {
            TraceKey(
                step=step, phase="variable", variable="count", replica=r
            ): np.asarray(n)
            for step, n in enumerate([0, *found], INITIAL)
            for r in replicas
        }
        infos = (*trace.variables, info)
        return replace(trace, variables=infos, values={**trace.values, **values})

    return replace(
        evidence,
        observed=add(evidence.observed, counts, [0]),
        reference=add(evidence.reference, due, [WHOLE, 0]),
        twins=tuple(add(twin, due, [WHOLE]) for twin in evidence.twins),
    )


@pytest.mark.parametrize(
    ("counts", "due", "is_lost"),
    [
        ((1, 1, 3, 3), (1, 2, 3, 4), True),
        ((0, 0, 3, 5), (1, 2, 3, 4), False),  # another step is wrong in another way
        ((0, 0, 0, 0), (1, 0, 1, 0), False),  # what is begun anew
        ((0, 1, 2, 3), (1, 2, 3, 4), False),  # it never moves
    ],
    ids=["some", "wrong-beside", "begun-anew", "never"],
)
def test_a_count_that_some_steps_do_not_move_is_told(
    counts: Sequence[int], due: Sequence[int], is_lost: bool
) -> None:
    evidence = observe(Fault(), replicas=1, steps=4)
    evidence = add_count(evidence, counts, due)
    subject = replace(evidence.subject, scheduled=True)
    (found,) = judge(replace(evidence, subject=subject)).findings
    assert found.variables == ("count",)
    assert (found.code == "lost-update") is is_lost


def test_a_count_that_goes_up_too_fast_is_told_by_its_first_step() -> None:
    """By 2 up to 4, where it begins anew: on one device after twice as many steps."""
    evidence = observe(Fault(), replicas=1, steps=4)
    # Each step begins with what one device left: 0, 1, 2 and 3.
    evidence = add_count(evidence, (2, 3, 0, 1), (1, 2, 3, 0))
    subject = replace(evidence.subject, scheduled=True)
    (found,) = judge(replace(evidence, subject=subject)).findings
    assert (found.code, found.step) == ("update-repeated", 0)
    assert (found.variables, found.ratio) == (("count",), 2)


def test_a_slot_that_stays_is_told_apart_from_one_that_moves_otherwise() -> None:
    """No factor stands for both, though one comes near."""

    def change(new, old, applied, run):
        if run.step != 1:
            return new
        still = {f"momentum/{KERNEL}": old[f"momentum/{KERNEL}"]}
        path = f"momentum/{BIAS}"
        return {**new, **still, path: old[path] + np.float32(0.03) * applied[BIAS]}

    evidence = observe(Fault(update=change), replicas=1, steps=4, rule=MOMENTUM)
    subject = replace(evidence.subject, scheduled=True)
    first, other = judge(replace(evidence, subject=subject)).findings
    assert (first.code, first.variables) == ("lost-update", (f"momentum/{KERNEL}",))
    assert other.variables == (f"momentum/{BIAS}",)
    assert other.code != "lost-update"


def keep(evidence: Evidence, held: Sequence[float], due: Sequence[float]) -> Evidence:
    """The same with a slot of the kernel.

    Args:
        evidence: Of a program on one worker.
        held: What the slot holds on the cluster, from before the first step on.
        due: The same on one device.
    """
    info = VariableInfo(
        path="kept", role="slot", of=KERNEL, shape=(2,), dtype="float32"
    )

    def put(trace: Trace, moves: Sequence[float], replicas: Sequence[int]) -> Trace:
        values = {
            TraceKey(step=step, phase="slot", variable="kept", replica=r): np.full(
                2, moved, np.float32
            )
            for step, moved in enumerate(moves, INITIAL)
            for r in replicas
        }
        infos = (*trace.variables, info)
        return replace(trace, variables=infos, values={**trace.values, **values})

    return replace(
        evidence,
        observed=put(evidence.observed, held, [0]),
        reference=put(evidence.reference, due, [WHOLE, 0]),
        twins=tuple(put(twin, due, [WHOLE]) for twin in evidence.twins),
    )


@pytest.mark.parametrize("is_kept", [True, False], ids=["here-too", "here-alone"])
def test_a_variable_that_stays_is_told_and_not_the_slot_that_moves_in_its_place(
    is_kept: bool,
) -> None:
    """One device leaves that slot as it is; if not, the variable may follow from it."""

    def change(new, old, applied, run):
        return {**new, **{p: old[p] for p in TRAINED if run.step in (0, 2)}}

    evidence = observe(Fault(update=change), replicas=1, steps=4)
    due = (0, 0.5, 0.25, 0.5, 0.25) if is_kept else (0,) * 5
    evidence = keep(evidence, (0, 0.7, due[2], 0.7, due[4]), due)
    evidence = replace(evidence, subject=replace(evidence.subject, scheduled=True))
    first = judge(evidence).findings[0]
    assert (first.phase == "slot") is is_kept
    assert is_kept or (first.code, first.step) == ("lost-update", 0)


def test_a_variable_that_stays_with_another_slot_is_not_told_beside_it() -> None:
    """Both lack the step; a slot in which it is kept has moved in their place."""

    def change(new, old, applied, run):
        if run.step % 2:
            return new
        return {**new, **{p: v for p, v in old.items() if p.endswith(KERNEL)}}

    evidence = observe(Fault(update=change), replicas=1, steps=4, rule=MOMENTUM)
    evidence = keep(evidence, (0, 0.7, 0, 0.7, 0), (0,) * 5)
    (finding,) = judge(evidence).findings
    assert finding.variables == (f"momentum/{KERNEL}",)
    assert "its turn comes in other steps" in finding.explanation


def test_no_turn_comes_where_no_step_moves_a_slot() -> None:
    def change(new, old, applied, run):
        return {**new, **{p: v for p, v in old.items() if p.startswith("momentum/")}}

    evidence = observe(Fault(update=change), replicas=1, steps=4, rule=MOMENTUM)
    first = judge(evidence).findings[0]
    assert first.phase == "slot"
    assert "no step of the run moves it" in first.explanation
    assert "a period that is longer" in first.explanation


def test_a_slot_that_no_step_moves_is_named_beside_one_that_takes_turns() -> None:
    def change(new, old, applied, run):
        still = f"momentum/{BIAS}"
        slots = {p for p in old if p.startswith("momentum/") and run.step % 2}
        return {**new, **{path: old[path] for path in {*slots, still}}}

    evidence = observe(Fault(update=change), replicas=1, steps=4, rule=MOMENTUM)
    told = [f for f in judge(evidence).findings if f.phase == "slot"]
    named = " ".join(finding.explanation for finding in told)
    assert f"no step of the run moves 'momentum/{BIAS}' here" in named, named
    assert "the turn of the others comes in other steps" in named
