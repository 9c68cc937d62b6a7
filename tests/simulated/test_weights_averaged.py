"""An average of the weights is no slot."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_rule import Rule
from training_simulator import KERNEL, Fault, observe
from weights_averaged import AVERAGE, observe_average

from distbench.diagnose.judge import judge
from distbench.diagnose.owners import name_owners
from distbench.evidence import Evidence
from distbench.trace import Trace
from distbench.verdict import Status


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


def test_what_only_decays_follows_from_no_gradient() -> None:
    evidence = observe_average(0.75, Fault())

    def decay(trace: Trace) -> Trace:
        values = {
            key: value * 0 + 0.5 ** (key.step + 1) if key.variable == AVERAGE else value
            for key, value in trace.values.items()
        }
        return replace(trace, values=values)

    assert find_owner(evidence.change_traces(decay), AVERAGE) == ""
