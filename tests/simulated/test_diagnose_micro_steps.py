"""Gradients that a step takes several times and adds up: how often each counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gradient_values import Gradients, add_values, scale
from training_simulator import Fault, observe, reduce_with

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence, Inside
from distbench.trace.intermediates import name_given
from distbench.verdict import Finding


@pytest.mark.first(3)
@pytest.mark.parametrize(
    ("made", "ratio", "code"),
    [
        (3, 3.0, "accumulation-scale"),
        (3, 1 / 3, "accumulation-scale"),
        (2, 2 / 3, "accumulation-scale"),
        (3, 2 / 3, "accumulation-scale"),
        (3, 0.7, "scale-error"),
        (1, 3.0, "scale-error"),
    ],
    ids=["k", "1/k", "r/k", "r/k-partial", "no-fraction", "no-micro-steps"],
)
def test_a_number_of_micro_steps_is_told_from_a_factor(made, ratio, code):
    fault = Fault(reduce=reduce_with(lambda v: scale(add_values(v), ratio)))
    evidence = observe(fault, steps=1)
    notes = {**evidence.observed.notes, "micro_steps": made}
    observed = replace(evidence.observed, notes=notes)
    first = judge(replace(evidence, observed=observed)).findings[0]
    assert (first.code, first.phase) == (code, "reduced_gradient")


def cut(value: np.ndarray, count: int) -> np.ndarray:
    """A gradient as so many micro-steps give it: shares that add up to it."""
    shares = np.random.default_rng(7).random((count, *value.shape))
    return (shares / shares.sum(axis=0) * value).astype(value.dtype)


def weigh(weights: Sequence[float]) -> Fault:
    """Replicas whose sum has each micro-step so many times."""

    def reduce(locals_: Sequence[Gradients], step: int) -> list[Gradients]:
        total = {
            name: sum(
                weight * part
                for g in locals_
                for weight, part in zip(
                    weights, cut(g[name], len(weights)), strict=True
                )
            ).astype(np.float32)
            for name in locals_[0]
        }
        return [total for _ in locals_]

    return Fault(reduce=reduce)


def look(evidence: Evidence, count: int) -> Evidence:
    """With what tapes gave for each micro-step."""
    given = {
        replace(key, phase="loss", variable=name_given(number, key.variable)): part
        for key, value in evidence.observed.select(phase="local_gradient")
        for number, part in enumerate(cut(value, count))
    }
    observed = replace(evidence.observed, values=given)
    return replace(evidence, inside=Inside(reference=observed, observed=observed))


def find(weights: Sequence[float], **setup: Any) -> Finding:
    evidence = observe(weigh(weights), sparse=False, **setup)
    return judge(look(evidence, len(weights))).findings[0]


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize(
    ("power", "words"),
    [
        ((-2, -1, 0), "divided by N again in each"),
        ((-3, -2, -1), "divided by N again in each"),
        ((1, 1, 0), "summed over the replicas, or multiplied by N, again in each"),
        ((2, 1, 0), "summed over the replicas, or multiplied by N, again in each"),
    ],
)
def test_what_is_done_again_to_all_that_is_accumulated_is_told(
    power: Sequence[int], words: str, replicas: int
) -> None:
    finding = find([float(replicas) ** p for p in power], replicas=replicas)
    assert (finding.code, finding.phase) == ("accumulation-scale", "reduced_gradient")
    assert words in finding.explanation
    assert finding.confidence == pytest.approx(1)


def test_micro_steps_that_are_lost_are_told() -> None:
    finding = find([0, 0, 1])
    assert finding.code == "accumulation-scale"
    assert "number 2 counts 0 where it counts 1 on one device" in finding.explanation
    assert "what counts 0 is lost" in finding.explanation


def test_other_weights_are_told_as_they_are() -> None:
    finding = find([1, 0.7])
    assert finding.code == "accumulation-scale"
    assert "number 2 counts 0.7 where it counts 1" in finding.explanation


def test_one_weight_for_all_is_no_matter_of_micro_steps() -> None:
    assert find([0.7, 0.7]).code == "scale-error"


def test_what_no_weights_make_up_is_left_open() -> None:
    """Nor is it told where nobody looked."""

    def bend(values: Sequence[Any]) -> Any:
        return np.sinh(add_values(values))

    evidence = observe(Fault(reduce=reduce_with(bend)), sparse=False)
    assert judge(look(evidence, 2)).findings[0].code != "accumulation-scale"
    evidence = observe(weigh([0, 1]), sparse=False)
    assert judge(evidence).findings[0].code != "accumulation-scale"


def keep(own: Sequence[int], weights: Sequence[float]) -> Fault:
    """Replicas that keep their own gradients of some micro-steps."""

    def reduce(locals_: Sequence[Gradients], step: int) -> list[Gradients]:
        def take(name: str, replica: int) -> np.ndarray:
            parts = [cut(g[name], len(weights)) for g in locals_]
            taken = [
                w * (parts[replica][j] if j in own else sum(part[j] for part in parts))
                for j, w in enumerate(weights)
            ]
            return np.asarray(sum(taken)).astype(np.float32)

        return [
            {name: take(name, replica) for name in locals_[0]}
            for replica in range(len(locals_))
        ]

    return Fault(reduce=reduce)


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize(
    ("own", "words"), [((1,), "number 2"), ((0, 2), "number 1, 3")]
)
def test_micro_steps_that_nobody_sums_are_told(
    own: Sequence[int], words: str, replicas: int
) -> None:
    evidence = observe(keep(own, [1, 1, 1]), sparse=False, replicas=replicas)
    finding = judge(look(evidence, 3)).findings[0]
    assert (finding.code, finding.phase) == ("missing-reduction", "reduced_gradient")
    assert f"goes on with its own of {words}," in finding.explanation
    assert finding.confidence == pytest.approx(1)
    assert judge(evidence).findings[0].code == "replicas-diverged"


def test_own_gradients_of_another_weight_are_left_open() -> None:
    """They are not what is due of that micro-step."""
    evidence = observe(keep([1], [1, 0.6, 1]), sparse=False)
    assert judge(look(evidence, 3)).findings[0].code == "replicas-diverged"
