"""Sums in a dtype that has no room for the largest of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sum_pairs import make_sum_pair
from training_simulator import observe

from distbench.diagnose.causes.chosen import explain_cases
from distbench.diagnose.clues.context import Context
from distbench.trace import VariableInfo

Array = np.ndarray
OWN = (
    np.array([[0.123456, -3.98765, 17.0001], [2.34567, 0.5, 1.00049]]),
    np.array([[60000.7, -50000.3, 12.3456], [7.89012, 31.0007, 2.00049]]),
)
"""The first replica's gradient in two steps; the second has 0.6 of it."""


def add_narrow(step: int, scale: float = 1.0) -> Array:
    with np.errstate(over="ignore"):
        sent = [(scale * g).astype(np.float16) for g in (OWN[step], 0.6 * OWN[step])]
        return (sent[0] + sent[1]).astype(np.float64) / scale


def explain(*observed: Array) -> dict[str, str]:
    """Details of the causes by code."""
    cases = tuple(
        make_sum_pair(step, value, [OWN[step], 0.6 * OWN[step]])
        for step, value in enumerate(observed)
    )
    kernel = VariableInfo(
        path="kernel", role="variable", shape=OWN[0].shape, dtype="float32"
    )
    evidence = observe()
    nothing = replace(evidence.reference, variables=(kernel,), values={})
    values = {case.key: case.observed.astype(np.float32) for case in cases}
    for case in cases:
        for replica, term in enumerate(case.terms):
            key = replace(case.key, phase="local_gradient", replica=replica)
            values[key] = term.astype(np.float32)
    seen = replace(nothing, values=values)
    evidence = replace(evidence, observed=seen, reference=nothing)
    context = Context(evidence=evidence, phase="reduced_gradient", cases=cases)
    with np.errstate(all="ignore"):  # as where a run is judged
        return {cause.code: cause.detail for cause in explain_cases(context)}


@pytest.mark.parametrize("scale", [1.0, 2.0, 16.0])
def test_what_overflows_is_told_apart_from_what_is_rounded(scale: float) -> None:
    told = explain(add_narrow(0, scale), add_narrow(1, scale))
    assert told.keys() == {"lower-precision", "nonfinite"}
    assert "float16 has no room" in told["nonfinite"]


@pytest.mark.parametrize("wrong", ["elsewhere", "not rounded"])
def test_other_infinite_sums_have_another_cause(wrong: str) -> None:
    sums = add_narrow(1)
    if wrong == "elsewhere":
        sums[1, 2] = np.inf
    else:
        finite = np.isfinite(sums)
        sums[finite] = (1.6 * OWN[1])[finite]
    told = explain(add_narrow(0), sums)
    assert "float16" not in told["nonfinite"]
