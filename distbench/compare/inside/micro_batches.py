"""What is right in all micro-batches of a step together, and in none by itself.

A step may cut its batch into parts, and differentiate a loss of each. A part of a
shard has other examples than any part of the global batch, so that nothing made of it
is a part of what one device has there. But all parts together have all examples: what
is made of each example by itself, and what is added up over them, is the same in all of
them, whatever the cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from distbench.compare.inside.nearness import Array, make_near

Part = Literal["same", "sum", "rows", "none"]
"""Which part of one device's value replicas have; `none` is no part of it."""
_MEANS = 3
"""So many means of its columns tell what stands in one row."""


def find_place(name: str) -> str:
    """Where a value is made, in whichever micro-batch: its name without the loss's.

    Empty of one that is not on the way to a loss.
    """
    number, _, place = name.partition("|")
    return place if number.isdigit() else ""


def relate_all(
    wholes: Sequence[Array], parts: Sequence[Sequence[Array]], lost: float
) -> Part:
    """Which part of what one device has in all micro-batches replicas have in all.

    Args:
        wholes: What one device has in each.
        parts: The same of each replica.
        lost: Share of a value that rounding may be.
    """
    every = [part for own in parts for part in own]
    values = [*wholes, *every]
    if not (wholes and all(parts) and all(np.isfinite(v).all() for v in values)):
        return "none"
    if len({value.ndim for value in values}) > 1:
        return "none"
    if len({value.shape for value in values}) == 1:
        due, seen = _add_up(wholes), _add_up(every)
        near = make_near(lost, due, every)
        if all(near(_add_up(own), due) for own in parts):
            return "same"
        if near(seen, due):
            return "sum"
    near = make_near(lost, wholes[0], [*wholes[1:], *every])
    is_rows = any(
        near(own, due)
        for due, own in zip(_list_rows(wholes), _list_rows(every), strict=True)
        if due is not None and own is not None
    )
    return "rows" if is_rows else "none"


def _add_up(values: Sequence[Array]) -> Array:
    return np.asarray(np.sum(values, axis=0, dtype=np.float64))


def _list_rows(values: Sequence[Array]) -> Iterator[Array | None]:
    """All rows of some values along each axis, whatever their order.

    That is each column in order, and so means of them with several weights, which tell
    what stands in one row. Rows in an order by one number would not do: those that lie
    closer than it rounds change places. No number in order moves farther than any did.

    Returns:
        None along an axis beside which they have other shapes.
    """
    for axis in range(values[0].ndim):
        shapes = {(*v.shape[:axis], *v.shape[axis + 1 :]) for v in values}
        if len(shapes) > 1:
            yield None
            continue
        joined = np.concatenate([np.moveaxis(v, axis, 0) for v in values])
        width = math.prod(joined.shape[1:])
        rows = joined.reshape(len(joined), width).astype(np.float64)
        weights = np.cos(np.outer(1.0 + np.arange(width), 1.0 + np.arange(_MEANS)))
        weights /= np.sum(np.abs(weights), axis=0)
        yield np.sort(np.hstack((rows, rows @ weights)), axis=0)
