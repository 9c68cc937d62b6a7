"""Whole numbers in the place of gradients, read with another unit than their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from gradient_values import to_array
from training_simulator import Fault, Gradients, observe
from wrong_steps import reduce_with

from distbench.diagnose.judge import judge

Array = np.ndarray
Read = Callable[[Sequence[float]], float]


def send_whole(
    values: Sequence[Array], levels: int, read: Read, cut: Callable[[Array], Array]
) -> Array:
    """Whole numbers of each replica's own unit, added up and read with one unit."""
    arrays = [to_array(value) for value in values]
    units = [np.max(np.abs(a)) / levels for a in arrays]
    sent = [cut(a / u) for a, u in zip(arrays, units, strict=True)]
    return np.asarray(np.sum(sent, axis=0) * read(units), np.float32)


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("replicas", "levels", "read", "cut", "words"),
    [
        (
            2,
            127,
            np.mean,
            np.round,
            "rounded; they are added up and read with the mean",
        ),
        (2, 7, lambda u: u[0], np.round, "read with the unit of replica 0"),
        (3, 127, lambda u: u[1], np.trunc, "cut off; they are added up and read with"),
        (3, 100, max, np.round, "read with the largest of"),
        (3, 127, np.mean, np.trunc, "the mean of the replicas' units"),
    ],
    ids=["mean", "first", "second-cut", "largest", "mean-cut"],
)
def test_a_sum_that_is_read_with_another_unit_is_told(
    replicas: int, levels: int, read: Read, cut: Callable[[Array], Array], words: str
) -> None:
    fault = Fault(reduce=reduce_with(lambda v: send_whole(v, levels, read, cut)))
    (finding,) = judge(observe(fault, replicas=replicas, steps=2)).findings
    assert finding.code == "nonlinear-before-reduction"
    assert finding.phase == "reduced_gradient"
    assert f"1 to {levels} for the largest element" in finding.explanation
    assert words in finding.explanation


def test_no_unit_is_told_where_the_numbers_are_not_whole() -> None:
    def scale(values: Sequence[Array]) -> Array:
        return send_whole(values, 127, np.mean, lambda x: np.arctan(x).astype(x.dtype))

    (finding,) = judge(observe(Fault(reduce=reduce_with(scale)), steps=2)).findings
    assert "whole numbers" not in finding.explanation


def test_a_sum_of_nothing_but_zeros_has_no_levels() -> None:
    def clear(gradients: Gradients, replica: int, step: int) -> Gradients:
        del replica, step
        return {path: 0.0 * to_array(value) for path, value in gradients.items()}

    fault = Fault(
        local=clear, reduce=reduce_with(lambda v: np.arctan(1 + to_array(v[0])))
    )
    judged = judge(observe(fault, replicas=3, steps=1, sparse=False))
    assert judged.status == "fail"
    assert "reduced_gradient" in {finding.phase for finding in judged.findings}
