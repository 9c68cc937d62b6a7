"""Updates that went through other kernels than one device's, as on GPUs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from planted_case import check_passed
from simulated_rule import Rule
from swept import swept
from training_simulator import TRAINED, Fault, observe

from distbench.compare.arrays.bounds import find_roundoff
from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import INITIAL


def move(roundings: float, paths: tuple[str, ...] = TRAINED) -> Fault:
    """Every replica's update is off by so many units of the largest element."""

    def update(new, old, gradients, run):
        moved = dict(new)
        for path in paths:
            value = new[path]
            u = find_roundoff(str(value.dtype))
            away = roundings * u * np.max(np.abs(value), initial=0)
            signs = np.random.default_rng(run.step).choice([-1, 1], value.shape)
            moved[path] = (value + away * signs).astype(value.dtype)
        return moved

    return Fault(update=update)


@pytest.mark.first(2)
@pytest.mark.parametrize("tier", ["bounded", *swept("exact")])
@pytest.mark.parametrize("name", ["sgd", *swept("adam")])
def test_what_other_kernels_round_passes(name: str, tier: str) -> None:
    rule = Rule(name=name)
    seen = observe(move(4), rule=rule, steps=3, tier=tier)
    check_passed(judge(change_evidence(seen, other_kernels=True)))
    # Where the kernels are the same, it is wrong.
    assert judge(seen).findings


@pytest.mark.parametrize("roundings", [30, 100])
def test_what_is_more_than_rounding_does_not(roundings: float) -> None:
    seen = observe(move(roundings), steps=3)
    judgement = judge(change_evidence(seen, other_kernels=True))
    assert {finding.phase for finding in judgement.findings} == {"variable"}


def test_an_update_taken_twice_is_told_among_other_kernels() -> None:
    rule = Rule(name="momentum")

    def update(new, old, gradients, run):
        return rule.update(rule.update(old, gradients), gradients)

    seen = observe(Fault(update=update), rule=rule, steps=3)
    codes = [f.code for f in judge(change_evidence(seen, other_kernels=True)).findings]
    assert codes == [f.code for f in judge(seen).findings]
    assert codes


def start_elsewhere(roundings: float) -> Evidence:
    """The cluster's initial values are off by so many units of the largest element."""
    seen = observe(steps=2)
    values = dict(seen.observed.values)
    for key, value in seen.observed.select(step=INITIAL, phase="variable"):
        away = roundings * 2.0**-24 * np.max(np.abs(value))
        values[key] = (value + away).astype(value.dtype)
    return change_evidence(
        replace(seen, observed=replace(seen.observed, values=values)), other_start=True
    )


def test_initial_values_that_other_kernels_draw_are_the_same() -> None:
    seen = start_elsewhere(4)
    check_passed(judge(seen))
    [found] = judge(change_evidence(seen, other_start=False)).findings
    assert found.code == "initial-value-differs"


def test_initial_values_that_differ_by_more_than_rounding_are_others() -> None:
    [found] = judge(start_elsewhere(1000)).findings
    assert found.code == "initial-value-differs"
