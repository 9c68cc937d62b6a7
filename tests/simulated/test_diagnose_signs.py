"""Signs of the replicas' gradients that are added up in their place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated_model import HEAD
from sum_pairs import make_sum_pair
from training_simulator import observe

from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import NONLINEAR
from distbench.diagnose.hypotheses.register import list_hypotheses

Array = np.ndarray
SHAPE = next(v.shape for v in observe().observed.variables if v.path == HEAD)


@np.errstate(all="ignore")
def list_named(observed: Array, terms: list[Array]) -> list[str]:
    """What predicts a sum that was seen once on each replica."""
    evidence = observe(replicas=len(terms))
    pair = make_sum_pair(0, observed, terms)
    cases = tuple(
        replace(pair, key=replace(pair.key, variable=HEAD, replica=replica))
        for replica in range(len(terms))
    )
    context = Context(evidence=evidence, phase="reduced_gradient", cases=cases)
    return [
        found.detail
        for found in list_hypotheses(context)
        if found.code == NONLINEAR
        and found.predicted
        and all(np.allclose(value, observed) for value in found.predicted.values())
    ]


@pytest.mark.parametrize("times", [1.0, 0.25])
def test_signs_that_are_added_up_are_told(times: float) -> None:
    rng = np.random.default_rng(3)
    terms = [rng.normal(size=SHAPE) for _ in range(2)]
    total = times * (np.sign(terms[0]) + np.sign(terms[1]))
    detail = list_named(total, terms)[0]
    multiple = "its sign" if times == 1 else "a multiple of its sign"
    assert detail == f"every replica replaces its gradient by {multiple}"


def test_addends_that_cancel_are_not_told_to_be_signs() -> None:
    """As of a task's weight, which is drawn one way here and another way there."""
    first = np.random.default_rng(3).normal(size=SHAPE)
    assert not list_named(np.zeros(SHAPE), [first, -3 * first])
