"""A fault that is planted into a simulated run, and what has to be said of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from simulated_rule import Rule
from training_simulator import BIAS, HEAD, KERNEL, Fault, observe
from wrong_steps import Stale

from distbench.diagnose.judge import judge
from distbench.diagnose.judgement import Judgement
from distbench.verdict import Status

MOMENTUM = Rule(name="momentum")
ADAM = Rule(name="adam")
DENSE = (KERNEL, BIAS, HEAD)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A planted fault and what has to be said of it.

    Attributes:
        steps: How many steps it takes until the fault is what it is.
        step: The first that is wrong.
    """

    name: str
    code: str
    phase: str
    fault: Fault
    variable: str | None = None
    replicas: tuple[int, ...] | None = None
    step: int | None = None
    steps: int = 1
    setup: dict[str, Any] = field(default_factory=dict)
    warning: bool = False


def run_case(case: Case, **more: Any) -> Judgement:
    fault = case.fault
    if fault.transform == "stale":
        fault = replace(fault, transform=Stale())
    if fault.local == "stale":
        fault = replace(fault, local=Stale((KERNEL,)))
    return judge(observe(fault, **{**case.setup, "steps": case.steps, **more}))


def check_named(case: Case, judgement: Judgement) -> None:
    """The fault is named first and alone, in its place, as sure as can be.

    Its numbers are of what it names, wherever that is wrong.
    """
    assert judgement.findings, judgement
    first = judgement.findings[0]
    told = (first.code, first.phase, first.explanation)
    assert (first.code, first.phase) == (case.code, case.phase), told
    assert judgement.status is (Status.PASS if case.warning else Status.FAIL)
    assert first.warning is case.warning
    assert [f.code for f in judgement.findings] == [case.code], judgement.findings
    if case.variable is not None:
        assert first.variable == case.variable
    if case.replicas is not None:
        assert first.replicas == case.replicas
    if case.step is not None:
        assert first.step == case.step
    assert first.confidence > 0.9
    assert case.code in first.explanation
    named = [
        c.error
        for c in judgement.compared
        if (c.phase, c.step) == (first.phase, first.step)
        and c.variable in first.variables
        and c.wrong
    ]
    assert not named or first.error in named, told


def check_passed(judgement: Judgement) -> None:
    assert judgement.status is Status.PASS, judgement
    assert judgement.findings == ()
