"""Values that are the same, as far as a fit or a share of their digits tells."""

from __future__ import annotations

import numpy as np
import pytest

from distbench.compare.arrays.ratio import are_near

ONE = np.array([3.0, 1.0])


@pytest.mark.parametrize(
    ("other", "near"),
    [
        (ONE + 0.002, True),
        (ONE + 0.004, False),
        (np.array([np.inf, 1.0]), False),
        (np.array([np.nan, 1.0]), False),
        (np.array([1.0]), False),
    ],
)
def test_a_share_of_the_largest_number_parts_values(
    other: np.ndarray, near: bool
) -> None:
    assert are_near(ONE, other) == near
    assert are_near(other, ONE) == near


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_near_itself_alone(odd: float) -> None:
    value = np.array([odd, 1.0])
    assert are_near(value, value.copy())
    assert not are_near(value, np.array([odd, 2.0]))
    assert not are_near(value, -np.array([np.inf, 1.0]) * np.sign(1.0))


def test_what_it_is_a_share_of_may_be_given() -> None:
    other = ONE + 0.05
    assert not are_near(ONE, other)
    assert are_near(ONE, other, np.array([100.0]))
    assert are_near(ONE, other, share=0.1)
