"""Which axes of what a step draws belong to its examples.

An axis that is as long as the batch may be so by chance, as that of a variable's shape
or of features. One that grows with the batch is the examples'. That shows where a step
is traced for batches of any size, and where it is traced for several.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import tensorflow as tf

UNKNOWN = -1
"""In place of a number of examples, where no batch was told."""

_STACKING = ("ConcatV2", "Tile")
"""Ops whose inputs are followed by an axis, or by how often they are repeated."""

Size = int | None
"""A length; None of one that a trace leaves open."""


class Layouts:
    """The shapes of the draws of a step, for each number of examples of its traces."""

    def __init__(self) -> None:
        self._shapes: dict[Hashable, dict[int, Sequence[Size]]] = {}
        self._stacked: dict[Hashable, bool] = {}

    def find(
        self, name: Hashable, examples: Size, shape: Sequence[Size]
    ) -> tuple[int, ...] | None:
        """The axes that grow with the batch; None where nothing tells.

        Args:
            name: Of the draw.
            examples: Of the batch for which it is traced; None of one of any size.
            shape: Of what is drawn, as far as it is known.
        """
        if examples is None:
            return tuple(axis for axis, size in enumerate(shape) if size is None)
        if examples <= 0:
            return None
        seen = self._shapes.setdefault(name, {})
        seen[examples] = tuple(shape)
        others = [
            (count, other)
            for count, other in seen.items()
            if count != examples and len(other) == len(shape)
        ]
        if not others or None in shape:
            return None
        return tuple(
            axis
            for axis, size in enumerate(shape)
            if size
            and size % examples == 0
            and all(
                _grows(size, other[axis], examples, count) for count, other in others
            )
        )

    def is_stacked(
        self, name: Hashable, graph: Any, examples: Size, rows: Size
    ) -> bool:
        """Whether the rows of a draw are whole batches, one after the other.

        As after `tf.concat([x, x], 0)`. Else the rows of each example lie side by side,
        as after `tf.repeat(x, k, 0)`, or where each has several parts. A trace for
        batches of any size goes by those for some, and so does what runs op by op.

        Args:
            name: Of the draw.
            graph: In which it is.
            examples: Of the batch for which it is traced; None of one of any size.
            rows: On the axis that grows with the batch.
        """
        is_known = examples is not None and rows is not None and rows != examples
        if is_known and not tf.executing_eagerly():
            self._stacked[name] = _has_stacked(graph, examples, rows)
        return self._stacked.get(name, False)


def _has_stacked(graph: Any, examples: Size, rows: Size) -> bool:
    """Whether a graph has put batches one after the other to so many rows."""
    return any(
        _count_rows(op.outputs[0]) == rows
        and all(_count_rows(part) == examples for part in op.inputs[:-1])
        for op in graph.get_operations()
        if op.type in _STACKING
    )


def _count_rows(tensor: Any) -> Size:
    shape = tensor.shape
    return shape[0] if shape.rank else UNKNOWN


def _grows(size: int, other: Size, examples: int, count: int) -> bool:
    return other is not None and size * count == other * examples


def count_traced(batch: Any) -> Size:
    """Number of examples in a batch, None of one that a trace leaves open."""
    leaves = tf.nest.flatten(batch)
    shapes = [tf.TensorShape(getattr(leaf, "shape", ())) for leaf in leaves]
    sizes = [shape[0] for shape in shapes if shape.rank]
    if None in sizes:
        return None
    return min(sizes, default=UNKNOWN)
