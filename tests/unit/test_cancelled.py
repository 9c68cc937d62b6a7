"""Gradients of which rounding may be all that is left have the size of their terms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distbench.compare.arrays.noise import Whole
from distbench.compare.state.cancelled import find_cancelled
from distbench.trace import WHOLE, Trace, TraceKey

LEFT = 7.5e-9
"""What twelve numbers of 1/24, of which half are negative, leave of 0 in float32."""


def _find(*steps: tuple[float, ...], moved: float = 0.0) -> list[float]:
    """Sizes by step of a bias beside a kernel of 0.6; 0 where it keeps its own.

    Args:
        steps: The bias of the global batch, and of shards.
        moved: By how much a twin has another one.
    """
    values = {
        TraceKey(
            step=step, phase="local_gradient", variable=name, replica=replica
        ): np.float32([number, -number])
        for step, bias in enumerate(steps)
        for name, numbers in (("kernel", (0.6, 0.2, 0.4)), ("bias", bias))
        for replica, number in zip((WHOLE, 0, 1), numbers, strict=False)
    }
    reference = Trace(
        name="one", replicas=2, shards=(8, 4), variables=(), values=values, notes={}
    )
    wholes = {
        key: Whole(size=float(np.max(np.abs(value))), norm=1.0)
        for key, value in values.items()
        if key.replica == WHOLE
    }
    other = {k: v + np.float32(moved) for k, v in values.items() if k in wholes}
    twin = replace(reference, values=other)
    found = find_cancelled(reference, [twin], wholes)
    assert {key.variable for key in found} <= {"bias"}
    sizes = {key.step: round(whole.size, 7) for key, whole in found.items()}
    return [sizes.get(step, 0.0) for step in range(len(steps))]


def test_what_cancels_has_the_size_of_its_shards() -> None:
    assert _find((LEFT, 0.25, -0.5)) == [0.5]
    assert _find((0.0, 0.25, -0.25)) == [0.25]


def test_what_cancels_in_each_shard_has_the_size_of_other_steps() -> None:
    assert _find((LEFT, LEFT, 0.0), (0.125, 0.25, -0.125)) == [0.25, 0.0]
    assert _find((LEFT,), (0.125,)) == [0.125, 0.0]


@pytest.mark.parametrize("moved", [0.0, LEFT, -3 * LEFT])
def test_what_shards_leave_is_one_rounding_of_its_size(moved: float) -> None:
    assert _find((LEFT, 0.0, 0.0), moved=moved) == [round(LEFT * 2**24, 7)]
    # No more than the largest gradient of the step.
    assert _find((8 * LEFT, 0.0, 0.0)) == [round(float(np.float32(0.6)), 7)]


def test_what_shards_leave_of_a_small_gradient_is_no_rounding() -> None:
    # A twin has nearly all of its digits, or it is too large for one.
    assert _find((LEFT, 0.0, 0.0), moved=LEFT / 100) == [0.0]
    assert _find((1e-4, 0.0, 0.0)) == [0.0001]


def test_others_keep_their_size() -> None:
    assert _find((0.01, 0.25, -0.25)) == [0.0]
    assert _find((0.3, 0.3, 0.3), (0.25, 0.9, 0.2)) == [0.0, 0.0]
