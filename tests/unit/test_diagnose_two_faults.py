"""Two faults at once, of two variables or of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from training_simulator import (
    BIAS,
    KERNEL,
    Fault,
    add_up,
    add_values,
    clip_norm,
    observe,
    scale,
)

from distbench.diagnose.judge import judge
from distbench.trace import Value

Combine = Callable[[Sequence[Value], int], Any]


def go_on_alone(values: Sequence[Value], replica: int) -> Any:
    return values[replica]


def double(values: Sequence[Value], replica: int) -> Any:
    return scale(add_values(values), len(values))


def lose_last(values: Sequence[Value], replica: int) -> Any:
    return add_values(values[:-1])


def clip(values: Sequence[Value], replica: int) -> Any:
    return add_values([clip_norm(value, 0.1) for value in values])


def times(factor: float) -> Combine:
    return lambda values, _: scale(add_values(values), factor)


def make_fault(ways: dict[str, Combine], **more: Any) -> Fault:
    """Some variables are reduced in ways of their own."""

    def reduce(locals_: Sequence[Any], step: int) -> list[Any]:
        return [
            {
                **add_up(locals_),
                **{p: way([g[p] for g in locals_], r) for p, way in ways.items()},
            }
            for r in range(len(locals_))
        ]

    return Fault(reduce=reduce, **more)


@pytest.mark.parametrize(
    ("kernel", "bias", "codes"),
    [
        (double, go_on_alone, ("double-reduction", "variable-not-reduced")),
        (lose_last, clip, ("replica-dropped", "clip-before-reduction")),
        (times(1.37), lose_last, ("scale-error", "replica-dropped")),
    ],
    ids=["doubled-and-own", "lost-and-clipped", "scaled-and-lost"],
)
def test_each_variable_has_its_own_cause(
    kernel: Combine, bias: Combine, codes: tuple[str, str]
) -> None:
    fault = make_fault({KERNEL: kernel, BIAS: bias})
    findings = judge(observe(fault, replicas=2)).findings
    named = {f.variables: f.code for f in findings}
    assert named == {(KERNEL,): codes[0], (BIAS,): codes[1]}


def test_two_factors_are_told_apart() -> None:
    fault = make_fault({KERNEL: times(1.37), BIAS: times(0.75)})
    (finding,) = judge(observe(fault, replicas=2)).findings
    assert finding.code == "scale-error"
    assert f"of '{KERNEL}' it is 1.37 times" in finding.explanation
    assert f"of '{BIAS}' it is 0.75 times" in finding.explanation


def test_a_wrong_loss_hides_no_wrong_sum() -> None:
    fault = make_fault({KERNEL: lose_last}, scale=lambda r, setup: setup.replicas)
    findings = judge(observe(fault, replicas=2)).findings
    codes = [(f.code, f.phase) for f in findings]
    assert codes == [
        ("loss-not-scaled", "loss"),
        ("replica-dropped", "reduced_gradient"),
    ]
