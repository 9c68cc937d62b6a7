"""Rules that take the counter of steps for another number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from training_simulator import TRAINED, Fault, Rule, observe

from distbench.diagnose.judge import judge
from distbench.verdict import Finding

N = 3
F = np.float32
_CODE = "hyperparameter-differs"
_TOLD = "takes the counter of steps, t, for {}, with N = 3"


@dataclass(frozen=True, kw_only=True)
class Switching(Rule):
    """Another rule from some step on: a sign of the momentum in place of it."""

    name: str = "momentum"
    counts: bool = True
    first: int = 4

    def update(self, state, gradients):
        new = super().update(state, gradients)
        if state["iterations"] >= self.first:
            for path in gradients:
                way = np.sign(new[f"momentum/{path}"])
                new[path] = state[path] - F(self.rate) * way
        return new


@dataclass(frozen=True, kw_only=True)
class Remembering(Rule):
    """A momentum that remembers more from step to step."""

    name: str = "momentum"
    counts: bool = True

    def update(self, state, gradients):
        new = super().update(state, gradients)
        kept = F(1 - 1 / (2 + state["iterations"]))
        for path in gradients:
            path = f"momentum/{path}"
            new[path] = new[path] + (kept - F(self.beta)) * state[path]
        return new


def find(
    rule: Rule, count: Callable[[int], int], *, goes_on: int = 1, steps: int = 6
) -> tuple[Finding, ...]:
    """What is said where a cluster counts otherwise."""

    def update(new, old, gradients, run):
        state = rule.update({**old, "iterations": count(old["iterations"])}, gradients)
        return {**state, "iterations": old["iterations"] + goes_on}

    return judge(
        observe(Fault(update=update), rule=rule, steps=steps, replicas=N)
    ).findings


@pytest.mark.parametrize(
    ("rule", "count", "phase", "step", "words"),
    [
        (Switching(), lambda t: N * t, "variable", 2, "N t"),
        (Switching(), lambda t: t // N, "variable", 4, "t // N"),
        (Switching(), lambda t: N * (t + 1) - 1, "variable", 1, "N (t + 1) - 1"),
        (Remembering(), lambda t: N * t, "slot", 1, "N t"),
    ],
    ids=["early", "late", "counted-by-each", "in-a-slot"],
)
def test_another_count_is_told_by_what_one_device_makes_of_it(
    rule: Rule, count: Callable[[int], int], phase: str, step: int, words: str
) -> None:
    (finding,) = find(rule, count)
    assert (finding.code, finding.phase, finding.step) == (_CODE, phase, step)
    assert len(finding.variables) == len(TRAINED)
    assert _TOLD.format(words) in finding.explanation


@pytest.mark.parametrize("late", [0, 1], ids=["always", "from-the-second-on"])
def test_what_no_count_leads_to_is_not(late: int) -> None:
    found = find(Remembering(), lambda t: 7 * t + 5 if t >= late else t)
    assert found
    assert not any("counter of steps" in finding.explanation for finding in found)


def test_nor_is_a_counter_that_is_itself_wrong() -> None:
    found = find(Remembering(), lambda t: N * (t + 1) - 1, goes_on=N)
    assert found
    assert not any("counter of steps, t" in finding.explanation for finding in found)
