"""Weights of the replicas' gradients in a sum, and whether it tells them."""

from __future__ import annotations

import numpy as np
import pytest
from sum_pairs import make_sum_pair
from training_simulator import observe

from distbench.diagnose.clues.context import Context
from distbench.diagnose.hypotheses.reduction import explain_by_weights

Array = np.ndarray


def list_named(observed: Array, terms: list[Array]) -> list[str]:
    """What is said of a sum that was seen once on each replica."""
    cases = tuple(make_sum_pair(0, observed, terms) for _ in terms)
    evidence = observe(replicas=len(terms))
    context = Context(evidence=evidence, phase="reduced_gradient", cases=cases)
    details = [found.detail for found in explain_by_weights(context)]
    return [detail for detail in details if "in place of 1 each" in detail]


def draw(seed: int) -> Array:
    return np.random.default_rng(seed).normal(size=40)


@pytest.mark.parametrize("apart", [1.0, 1e-3])
def test_weights_of_gradients_that_differ_are_told(apart: float) -> None:
    terms = [draw(0), draw(0) + apart * draw(1)]
    total = (1.5 * terms[0] + 0.25 * terms[1]).astype(np.float32).astype(np.float64)
    (detail,) = list_named(total, terms)
    words = detail.removeprefix("the replicas' gradients weigh ").split(" in place")[0]
    weights = [float(word) for word in words.split(", ")]
    assert np.allclose(weights, [1.5, 0.25], rtol=1e-3)


@pytest.mark.parametrize("apart", [1e-7, 0.0])
def test_weights_that_rounding_makes_are_not(apart: float) -> None:
    """The gradients are the same but for their last digits, as of the same examples."""
    terms = [draw(0), draw(0) + apart * draw(1)]
    total = (1.75 * draw(0)).astype(np.float32).astype(np.float64)
    assert not list_named(total, terms)


def test_a_sum_that_replicas_share_tells_its_weights_once() -> None:
    """Three numbers of three replicas' gradients: any sum has such weights."""
    terms = [draw(seed)[:3] for seed in range(3)]
    total = sum(terms) + 1e-3 * draw(3)[:3]
    assert not list_named(total, terms)


def test_weights_that_cancel_explain_no_other_cause() -> None:
    """What is added lies along the small difference of two gradients, by the half."""
    terms = [draw(0), draw(0) + 1e-4 * draw(1)]
    total = terms[0] + terms[1] + 0.01 * (draw(1) + 3 * draw(2))
    assert not list_named(total, terms)
