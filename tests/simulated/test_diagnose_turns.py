"""Replicas that share their variables, and update them one after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import add_up
from training_simulator import Fault, observe

from distbench.compare.comparison import Judged, compare_evidence
from distbench.diagnose.readings.turns import leave_out_turns
from distbench.evidence import Evidence
from distbench.trace import STATE, Trace


def nobody_sums(locals_, step):
    return list(locals_)


def everybody_sums(locals_, step):
    return [add_up(locals_)] * len(locals_)


def update_twice(new, old, gradients, run):
    return run.rule.update(new, gradients)


def leave_as(observed: Trace, *, moved: bool = False) -> Trace:
    """What updates in turn leave, where that is the state that was seen, or near it."""
    values = {
        key: np.nextafter(value, np.inf) if moved and value.dtype.kind == "f" else value
        for phase in STATE
        for key, value in observed.select(step=0, phase=phase, replica=0)
    }
    return replace(observed, name="turns", values=values)


def observe_wrong(reduce, **fault) -> Evidence:
    return observe(Fault(reduce=reduce, **fault), steps=1, central=True)


def name_wrong(judged: tuple[Judged, ...]) -> set[str]:
    return {j.comparison.phase for j in judged if j.comparison.wrong}


def test_what_follows_from_updates_in_turn_is_left_out():
    evidence = observe_wrong(nobody_sums)
    judged = compare_evidence(evidence)
    assert "variable" in name_wrong(judged)
    turns = leave_as(evidence.observed)
    left = leave_out_turns(judged, change_evidence(evidence, turns=turns))
    assert name_wrong(left) == {"reduced_gradient", "applied_gradient"}
    assert [j for j in judged if not j.comparison.wrong] == [
        j for j in left if not j.comparison.wrong
    ]


@pytest.mark.parametrize(
    ("evidence", "moved"),
    [
        (observe_wrong(nobody_sums), True),
        (observe_wrong(everybody_sums, update=update_twice), False),
    ],
    ids=["another-state", "a-sum-applied-twice"],
)
def test_nothing_is_left_out_where_it_does_not_follow(evidence, moved):
    judged = compare_evidence(evidence)
    turns = leave_as(evidence.observed, moved=moved)
    assert leave_out_turns(judged, change_evidence(evidence, turns=turns)) == judged


def test_replicas_with_variables_of_their_own_take_no_turns():
    evidence = observe_wrong(nobody_sums)
    judged = compare_evidence(evidence)
    assert leave_out_turns(judged, evidence) == judged
