"""Averages of the weights that go another part of their way, step by step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from training_simulator import HEAD, TRAINED, Fault, Rule, observe

from distbench.diagnose.judge import judge
from distbench.verdict import Finding

N = 3
Parts = tuple[float, ...]
F = np.float32
_CODE = "hyperparameter-differs"


@dataclass(frozen=True, kw_only=True)
class Averaging(Rule):
    """Keeps averages of its weights.

    Attributes:
        parts: What part of their way they go in each step.
        of_one: The same of those of the head, where they go another one.
        is_early: Whether they go to the weights before the step.
        takes_along: Whether the weights are set to their average where it moves.
    """

    name: str = "ema"
    parts: Parts = ()
    of_one: Parts = ()
    is_early: bool = False
    takes_along: bool = False

    def update(self, state, gradients):
        new = super().update(state, gradients)
        step = int(state["iterations"])
        for path in gradients:
            parts = self.of_one if self.of_one and path == HEAD else self.parts
            old = state[f"average/{path}"]
            end = (state if self.is_early else new)[path]
            part = old.dtype.type(parts[min(step, len(parts) - 1)])
            new[f"average/{path}"] = old + part * (end - old)
            if self.takes_along and part:
                new[path] = new[f"average/{path}"]
        return new


def find(rule: Averaging, **wrong: object) -> tuple[Finding, ...]:
    """What is said where a cluster has another rule."""
    other = replace(rule, **wrong)

    def update(new, old, gradients, run):
        return other.update(old, gradients)

    steps = len(rule.parts)
    return judge(
        observe(Fault(update=update), rule=rule, steps=steps, replicas=N)
    ).findings


def count(times: int, first: int = 0) -> Parts:
    """Of a mean that begins in some step, and counts each one so often."""
    return tuple(
        0.0 if step < first else 1 / (1 + times * (step - first)) for step in range(5)
    )


def start_quickly(times: int) -> Parts:
    return tuple(
        1 - min(0.99, (1 + times * step) / (10 + times * step)) for step in range(5)
    )


@pytest.mark.parametrize("is_early", [False, True], ids=["after", "before"])
@pytest.mark.parametrize(
    ("due", "gone", "step", "words"),
    [
        (count(1), count(N), 1, "0.25, 0.1429, 0.1, 0.07692 in steps 1, 2, 3, 4, and"),
        (start_quickly(1), start_quickly(N), 1, "in steps 1, 2, 3, 4"),
        (count(1, 3), count(N, 3), 4, "it goes 0.25 in step 4, and 0.5 on one device"),
        (count(1, 3), count(1, 1), 1, "0, 0, 1, 0.5 on one device: its turn comes in"),
    ],
    ids=["counts", "quick", "late", "starts-early"],
)
def test_another_part_in_each_step_is_one_setting(
    is_early: bool, due: Parts, gone: Parts, step: int, words: str
) -> None:
    rule = Averaging(parts=due, is_early=is_early)
    (finding,) = find(rule, parts=gone)
    assert (finding.code, finding.phase, finding.step) == (_CODE, "slot", step)
    assert len(finding.variables) == len(TRAINED)
    assert words in finding.explanation


def test_slow_weights_that_take_others_along_in_other_steps_are_told() -> None:
    rule = Averaging(parts=(0, 0, 0.5, 0, 0), takes_along=True)
    (finding,) = find(rule, parts=(0, 0.5, 0, 0.5, 0))
    assert (finding.code, finding.phase, finding.step) == (_CODE, "slot", 1)
    assert "goes 0.5, 0, 0.5 in steps 1, 2, 3, and 0, 1, 0 on" in finding.explanation


def test_a_variable_that_has_parts_of_its_own_is_told_by_itself() -> None:
    rule = Averaging(parts=count(1))
    (finding,) = find(rule, parts=(0.5, 0.3, 0.2), of_one=(0.5, 0.4, 0.1))
    assert (finding.code, finding.phase) == (_CODE, "slot")
    assert "more) of its way to the variable that it follows" in finding.explanation
    assert f"; of 'average/{HEAD}' of its way to" in finding.explanation


@pytest.mark.parametrize(
    "gone",
    [(0.5, 1.5, 0.3, 1.2, 0.7), (0.5, -0.5, 0.3, -0.1, 0.7)],
    ids=["too-far", "back"],
)
def test_what_is_no_part_of_a_way_is_not(gone: Parts) -> None:
    found = find(Averaging(parts=count(1)), parts=gone)
    assert found
    assert not any("of its way to" in finding.explanation for finding in found)


def test_nor_is_what_goes_elsewhere() -> None:
    rule = Averaging(parts=count(1))

    def update(new, old, gradients, run):
        for path in gradients:
            average = f"average/{path}"
            new[average] = new[average] + F(0.1) * new[f"momentum/{path}"]
        return new

    found = judge(
        observe(Fault(update=update), rule=rule, steps=3, replicas=N)
    ).findings
    assert found
    assert not any("of its way to" in finding.explanation for finding in found)


def test_nor_is_what_one_replica_alone_does() -> None:
    rule = Averaging(parts=count(1))
    other = replace(rule, parts=count(N))

    def update(new, old, gradients, run):
        return other.update(old, gradients) if run.replica == 1 else new

    found = judge(
        observe(Fault(update=update), rule=rule, steps=3, replicas=N)
    ).findings
    assert [finding.code for finding in found] == ["slot-not-synchronized"]


def test_what_is_gone_k_times_is_told_to_be_repeated() -> None:
    due = start_quickly(1)
    gone = tuple(1 - (1 - part) ** N for part in due)
    (finding,) = find(Averaging(parts=due), parts=gone)
    assert (finding.code, finding.ratio) == ("slot-repeated", N)
