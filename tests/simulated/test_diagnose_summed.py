"""How often a sum was divided, and which of many replicas it lacks."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_values import add_values, map_values, scale
from training_simulator import Fault, observe, reduce_with

from distbench.diagnose.judge import judge
from distbench.trace import Value


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize(
    ("power", "code"), [(-2, "mean-instead-of-sum"), (2, "double-reduction")]
)
def test_a_sum_that_is_divided_or_multiplied_twice_is_named(
    replicas: int, power: int, code: str
) -> None:
    factor = float(replicas) ** power
    fault = Fault(reduce=reduce_with(lambda v: scale(add_values(v), factor)))
    [finding] = judge(observe(fault, replicas=replicas, steps=1)).findings
    assert (finding.code, finding.phase) == (code, "reduced_gradient")
    assert finding.ratio == pytest.approx(factor)
    assert f"N² = {replicas**2}" in finding.explanation


def test_two_of_six_are_named_though_the_others_are_blurred() -> None:
    """As by a compression of each one's own: a fit weighs them not quite alike."""
    rng = np.random.default_rng(0)

    def blur(array: np.ndarray) -> np.ndarray:
        noise = 1 + 0.03 * rng.normal(size=array.shape)
        return (array * noise).astype(array.dtype)

    def reduce(values: list[Value]) -> Value:
        kept = values[:2] + values[4:]
        return add_values([map_values(value, blur) for value in kept])

    fault = Fault(reduce=reduce_with(reduce))
    [finding] = judge(observe(fault, replicas=6, steps=1)).findings
    assert (finding.code, finding.replicas) == ("replica-dropped", (2, 3))
