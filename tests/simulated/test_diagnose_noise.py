"""Noise that joins gradients before their sum, and what only looks like it."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_values import add_values, map_values
from training_simulator import KERNEL, Fault, observe
from wrong_steps import add_noise, reduce_some

from distbench.diagnose.judge import judge

DRAWS = ("noise.py:3",)


def add_noise_to_each(values):
    return add_values([add_noise(value) for value in values])


def rise(values):
    """Elements are multiplied by 0.4 to 1.9, the last ones most."""

    def multiply(array):
        factors = np.linspace(0.4, 1.9, array.size).reshape(array.shape)
        return array * factors.astype(array.dtype)

    return map_values(add_values(values), multiply)


@pytest.mark.parametrize(
    ("change", "draws", "code"),
    [
        (add_noise_to_each, DRAWS, "nonlinear-before-reduction"),
        (add_noise_to_each, (), "unexplained"),
        (add_noise_to_each, None, "unexplained"),
        (rise, DRAWS, "unexplained"),
        (rise, None, "unexplained"),
    ],
    ids=["noise", "drawn-by-nobody", "not-known", "rise", "rise-not-known"],
)
def test_noise_is_told_where_something_is_drawn_and_nothing_repeats(
    change, draws, code
):
    fault = Fault(reduce=reduce_some([KERNEL], change))
    # What a rise adds of 30 numbers has nothing to do with their sizes under these.
    for seed in (0, 11, 12):
        width = 6 if change is rise else 12
        evidence = observe(fault, width=width, sparse=False, seed=seed, draws=draws)
        (finding,) = judge(evidence).findings
        assert (finding.code, finding.variables) == (code, (KERNEL,))
        assert ("adds noise" in finding.explanation) == (code != "unexplained")
