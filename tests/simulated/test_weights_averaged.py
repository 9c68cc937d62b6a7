"""An average of the weights is no slot, and is no mistake where they are wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated_rule import Rule
from training_simulator import KERNEL, TRAINED, Fault, observe
from weights_averaged import AVERAGE, observe_average

from distbench.diagnose.judge import judge
from distbench.diagnose.readings.owners import name_owners
from distbench.evidence import Evidence
from distbench.trace import Trace
from distbench.verdict import Status


def go_farther(new, old, gradients, run):
    longer = old[KERNEL] + (new[KERNEL] - old[KERNEL]) * new[KERNEL].dtype.type(1.5)
    return {**new, KERNEL: longer}


def stay(new, old, gradients, run):
    return {**new, KERNEL: old[KERNEL]}


def find_owner(evidence: Evidence, path: str) -> str:
    [info] = [v for v in name_owners(evidence).observed.variables if v.path == path]
    return info.of


@pytest.mark.parametrize("decay", [0.75, 0.99, 0.999])
def test_an_average_of_the_weights_is_no_slot(decay: float) -> None:
    """Of its old value any gradient makes its new one, to the 1000th part."""
    evidence = observe_average(decay, Fault())
    assert find_owner(evidence, AVERAGE) == ""
    assert judge(evidence).status is Status.PASS


@pytest.mark.parametrize("beta", [0.5, 0.999])
def test_a_momentum_by_hand_is_one(beta: float) -> None:
    evidence = observe(rule=Rule(name="momentum", beta=beta), steps=3)
    path = f"momentum/{KERNEL}"

    def keep_by_hand(trace: Trace) -> Trace:
        infos = (
            replace(v, role="variable", of="", trainable=False) if v.path == path else v
            for v in trace.variables
        )
        values = {
            replace(key, phase="variable") if key.variable == path else key: value
            for key, value in trace.values.items()
        }
        return replace(trace, variables=tuple(infos), values=values)

    assert find_owner(evidence.change_traces(keep_by_hand), path) == KERNEL


@pytest.mark.parametrize("rate", [0.5, 1.0], ids=["decays", "stays"])
def test_what_decays_or_stays_follows_from_no_gradient(rate: float) -> None:
    evidence = observe_average(0.75, Fault())

    def decay(trace: Trace) -> Trace:
        values = {
            key: np.random.default_rng(0).normal(size=np.shape(value))
            * rate ** (key.step + 1)
            if key.variable == AVERAGE
            else value
            for key, value in trace.values.items()
        }
        return replace(trace, values=values)

    assert find_owner(evidence.change_traces(decay), AVERAGE) == ""


@pytest.mark.parametrize("by_shard", [True, False], ids=["shards", "whole"])
@pytest.mark.parametrize("decay", [0.75, 0.999])
def test_an_average_of_wrong_weights_is_no_second_mistake(
    decay: float, by_shard: bool
) -> None:
    evidence = observe_average(decay, Fault(update=go_farther), by_shard=by_shard)
    (finding,) = judge(evidence).findings
    assert finding.code == "hyperparameter-differs"
    assert finding.variables == (KERNEL,)
    assert finding.ratio == pytest.approx(1.5)


@pytest.mark.parametrize(
    "fault", [Fault(update=go_farther), Fault()], ids=["both", "alone"]
)
def test_an_average_that_goes_another_way_is_still_one(fault: Fault) -> None:
    found = judge(observe_average(0.75, fault, taken=0.9)).findings
    assert AVERAGE in [finding.variable for finding in found]
    assert (KERNEL in [finding.variable for finding in found]) == (fault != Fault())


def test_what_is_repeated_with_its_average_is_told_of_both() -> None:
    def repeat(new, old, gradients, run):
        return {**run.rule.update(new, gradients), "iterations": new["iterations"]}

    (finding,) = judge(observe_average(0.999, Fault(update=repeat))).findings
    assert finding.code == "update-repeated"
    assert finding.variables == (*TRAINED, AVERAGE)


@pytest.mark.parametrize("change", [stay, go_farther])
def test_an_average_that_follows_a_wrong_variable_is_not_told(change) -> None:
    """Nor where that stays as it was, and the average moves."""
    (finding,) = judge(observe_average(0.75, Fault(update=change))).findings
    assert finding.variables == (KERNEL,)
