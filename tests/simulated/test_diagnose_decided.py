"""Sums of which replicas leave themselves out, each by something of its own."""

from __future__ import annotations

import pytest
from gradient_values import add_up
from training_simulator import Fault, Gradients, observe

from distbench.diagnose.judge import judge
from distbench.verdict import Finding


def sum_parts(*parts: tuple[int, ...]) -> Fault:
    """In each step the sum is that of some replicas."""

    def reduce(locals_: list[Gradients], step: int) -> list[Gradients]:
        total = add_up([locals_[replica] for replica in parts[step]])
        return [total for _ in locals_]

    return Fault(reduce=reduce)


def find(*parts: tuple[int, ...]) -> Finding:
    evidence = observe(sum_parts(*parts), replicas=3, steps=len(parts))
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("replica-dropped", "reduced_gradient")
    assert finding.confidence == pytest.approx(1)
    return finding


@pytest.mark.parametrize("first", [(0, 2), (1,)])
def test_others_in_another_step_decide_for_themselves(first: tuple[int, ...]) -> None:
    finding = find(first, (0, 1, 2), (0, 1))
    assert finding.step == 0
    assert finding.replicas == tuple(r for r in range(3) if r not in first)
    assert "decides by something of its own" in finding.explanation
    assert "where one device takes all" in finding.explanation


def test_who_is_left_out_of_every_sum_decides_nothing() -> None:
    finding = find((0, 2), (0, 2), (0, 2))
    assert finding.replicas == (1,)
    assert "decides" not in finding.explanation
