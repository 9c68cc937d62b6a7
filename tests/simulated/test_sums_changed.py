"""Sums that one device changes by their size are held against what it makes of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gradient_values import add_up, scale
from training_simulator import RIGHT, Fault, observe

from distbench.compare.arrays.pair import CHANGED, SUM
from distbench.compare.comparison import compare_evidence
from distbench.evidence import Evidence


def halve(own, step):
    """The half of each sum, as a clip leaves it that one device does not need."""
    total = {path: scale(value, 0.5) for path, value in add_up(own).items()}
    return [total] * len(own)


def lead(evidence: Evidence, times: float) -> Evidence:
    """One device makes so many times what replicas reduce of the sum they have."""
    values = {
        key: scale(value, times)
        for key, value in evidence.observed.select(phase="reduced_gradient", replica=0)
    }
    changed = replace(evidence.observed, replicas=1, values=values)
    return replace(evidence, fed=replace(evidence.fed, changed=changed))


def list_follows(evidence: Evidence) -> set[tuple[str, bool]]:
    return {
        (item.comparison.against, item.comparison.wrong)
        for item in compare_evidence(evidence)
        if item.comparison.phase == "reduced_gradient"
        and item.comparison.relation == "follows"
    }


@pytest.mark.parametrize(("times", "wrong"), [(1.0, False), (1.5, True)])
def test_a_sum_follows_as_one_device_changes_it(times: float, wrong: bool) -> None:
    evidence = observe(Fault(reduce=halve))
    assert list_follows(evidence) == {(SUM, True)}
    assert list_follows(lead(evidence, times)) == {(CHANGED, wrong)}


def test_a_sum_that_is_handed_on_as_it_is_is_held_against_its_addends() -> None:
    assert list_follows(lead(observe(RIGHT), 1.0)) == {(SUM, False)}
