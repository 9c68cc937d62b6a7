"""Gradients of which rounding may be all that is left have the size of their terms."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from distbench.compare.arrays.noise import Whole
from distbench.compare.state.cancelled import find_cancelled
from distbench.trace import WHOLE, Phase, SparseRows, Trace, TraceKey, Value

LEFT = 7.5e-9
"""What twelve numbers of 1/24, of which half are negative, leave of 0 in float32."""


def _find(
    *steps: tuple[float, ...],
    moved: float = 0.0,
    kernel: float = 0.6,
    narrowly: float = 0.0,
) -> list[float]:
    """Sizes by step of a bias beside a kernel; 0 where it keeps its own.

    Args:
        steps: The bias of the global batch, and of shards.
        moved: By how much a twin has another one.
        kernel: The gradient of the kernel.
        narrowly: By how much a run that is rounded in bfloat16 has another one.
    """
    kernels = kernel, kernel / 3, kernel * 2 / 3
    values = {
        TraceKey(
            step=step, phase="local_gradient", variable=name, replica=replica
        ): np.float32([number, -number])
        for step, bias in enumerate(steps)
        for name, numbers in (("kernel", kernels), ("bias", bias))
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
    twin, rounded = (
        replace(reference, values={k: values[k] + np.float32(by) for k in wholes})
        for by in (moved, narrowly)
    )
    found = find_cancelled(reference, [twin], wholes, [rounded], "bfloat16")
    assert {key.variable for key in found} <= {"bias"}
    sizes = {key.step: round(whole.size, 7) for key, whole in found.items()}
    return [sizes.get(step, 0.0) for step in range(len(steps))]


def test_what_cancels_has_the_size_of_its_shards() -> None:
    assert _find((LEFT, 0.25, -0.5)) == [0.5]
    assert _find((0.0, 0.25, -0.25)) == [0.25]


def test_what_a_narrower_dtype_leaves_has_the_size_of_its_shards() -> None:
    assert _find((4e-3, 0.25, -0.25), narrowly=3e-3) == [0.25]
    assert _find((4e-3, 0.25, -0.25), narrowly=1e-3) == [0.0]
    assert _find((4e-2, 0.25, -0.25), narrowly=3e-2) == [0.0]


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


def test_no_other_gradient_is_needed_to_know_what_cancels() -> None:
    assert _find((LEFT, 0.25, -0.5), kernel=1e-3) == [0.5]
    # Of other steps as much as the step's own scale: one of them may be an odd one.
    assert _find((LEFT, LEFT, 0.0), (0.3, 1e6, -0.5), kernel=0.1)[0] == 0.1


def _size(steps: dict[str, tuple[float, ...]], phase: Phase) -> float | None:
    """What is found of the first of some values of one step, by phase; None if nothing.

    Args:
        steps: By phase, what the global batch has, and its shards.
        phase: Which of them.
    """
    values: dict[TraceKey, Value] = {
        TraceKey(
            step=0,
            phase=cast(Phase, name),
            variable="" if name == "loss" else "w",
            replica=replica,
        ): np.float32([number])
        for name, numbers in steps.items()
        for replica, number in zip((WHOLE, 0, 1), numbers, strict=False)
    }
    reference = Trace(
        name="one", replicas=2, shards=(8, 4), variables=(), values=values, notes={}
    )
    wholes = {
        key: Whole(size=abs(float(value[0])), norm=1.0)  # type: ignore[index]
        for key, value in values.items()
        if key.replica == WHOLE
    }
    found = find_cancelled(reference, [], wholes)
    return next((w.size for k, w in found.items() if k.phase == phase), None)


def test_a_loss_whose_terms_cancel_has_their_size() -> None:
    assert _size({"loss": (0.0, 0.5, -0.25)}, "loss") == 0.5
    assert _size({"loss": (1.0, 0.5, 0.5)}, "loss") is None


def test_what_is_made_of_a_gradient_has_its_terms_in_its_own_units() -> None:
    scaled = {"local_gradient": (3e4, 2e4, 1e4), "applied_gradient": (1.0,)}
    assert _size(scaled, "applied_gradient") is None
    scaled = {"local_gradient": (2e-3, 2e4, -2e4), "applied_gradient": (1e-3,)}
    assert _size(scaled, "applied_gradient") == 1e4


def test_rows_of_a_large_table_are_not_made_dense() -> None:
    def make(number: float) -> SparseRows:
        return SparseRows(
            values=np.float32([[number]]), indices=np.int64([7]), shape=(1 << 40, 1)
        )

    key = TraceKey(step=0, phase="local_gradient", variable="table")
    values = {key: make(0), key.at(0): make(0.5), key.at(1): make(-0.5)}
    reference = Trace(
        name="one", replicas=2, shards=(8, 4), variables=(), values=values, notes={}
    )
    found = find_cancelled(reference, [reference], {key: Whole(size=0.0, norm=0.0)})
    assert found[key].size == 0.5
