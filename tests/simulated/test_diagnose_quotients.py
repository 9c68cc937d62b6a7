"""Sums that are divided, element by element, by sizes of the replicas' own addends."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from gradient_values import Gradients, add_up, to_array
from training_simulator import TRAINED, Fault, observe

from distbench.diagnose.judge import judge
from distbench.verdict import Status

Rule = Callable[[np.ndarray], np.ndarray]
"""What a size is made to before a sum is divided by it."""

RULES: dict[str, Rule] = {
    "size": lambda size: size + 1e-2,
    "twice": lambda size: 2 * size + 0.25,
    "square": lambda size: size**2 + 0.25,
    "root": lambda size: np.sqrt(size**2 + 1e-2),
}
SIZES = {
    "the root of the sum of the squares": lambda g: np.sqrt(np.sum(g**2, axis=0)),
    "the root of the mean of the squares": lambda g: np.sqrt(np.mean(g**2, axis=0)),
    "the sum of the absolute values": lambda g: np.sum(np.abs(g), axis=0),
    "the largest absolute value": lambda g: np.max(np.abs(g), axis=0),
}


def measure(gradients: Gradients) -> dict[str, np.ndarray]:
    return {path: np.abs(to_array(value)) for path, value in gradients.items()}


def divide(total: Gradients, sizes: dict[str, np.ndarray], rule: Rule) -> Gradients:
    return {
        path: np.asarray(to_array(value) / rule(sizes[path]), np.float32)
        for path, value in total.items()
    }


@pytest.mark.parametrize("words", SIZES)
@pytest.mark.parametrize("name", RULES)
def test_a_size_made_of_those_of_the_addends_is_told(words: str, name: str) -> None:
    rule = RULES[name]

    def reduce(locals_: list[Gradients], step: int) -> list[Gradients]:
        sizes = {
            path: SIZES[words](np.array([to_array(own[path]) for own in locals_]))
            for path in locals_[0]
        }
        return [divide(add_up(locals_), sizes, rule) for _ in locals_]

    def alone(gradients: Gradients) -> Gradients:
        sizes = measure(gradients)
        return divide(gradients, sizes, rule)

    evidence = observe(
        Fault(reduce=reduce), replicas=3, steps=3, alone=alone, sparse=False
    )
    (finding,) = judge(evidence).findings
    assert finding.code == "nonlinear-before-reduction"
    assert finding.variables == TRAINED
    assert f"taken for that is {words} of the" in finding.explanation


def test_the_size_of_the_sum_is_right() -> None:
    rule = RULES["root"]

    def alone(gradients: Gradients) -> Gradients:
        sizes = measure(gradients)
        return divide(gradients, sizes, rule)

    def reduce(locals_: list[Gradients], step: int) -> list[Gradients]:
        return [alone(add_up(locals_)) for _ in locals_]

    evidence = observe(
        Fault(reduce=reduce), replicas=3, steps=3, alone=alone, sparse=False
    )
    assert judge(evidence).status is Status.PASS


def test_another_divisor_is_no_size_of_the_addends() -> None:
    """Nothing that is known: a size of the addends, shifted by one element."""
    rule = RULES["size"]

    def alone(gradients: Gradients) -> Gradients:
        sizes = measure(gradients)
        return divide(gradients, sizes, rule)

    def reduce(locals_: list[Gradients], step: int) -> list[Gradients]:
        total = add_up(locals_)
        sizes = {p: np.roll(size, 1) for p, size in measure(total).items()}
        return [divide(total, sizes, rule) for _ in locals_]

    evidence = observe(
        Fault(reduce=reduce), replicas=3, steps=3, alone=alone, sparse=False
    )
    (finding,) = judge(evidence).findings
    assert finding.code == "unexplained"
