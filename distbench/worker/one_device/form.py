"""A gradient in the form that another one has, with the same sum of each row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from distbench.trace import SparseRows, Value, change_numbers
from distbench.trace.numbers import densify
from distbench.worker.state.values import are_near, count_digits

Rows = npt.NDArray[np.int64]


def take_form(own: Value, seen: Value, handed: tuple[Value, ...]) -> Value | None:
    """A gradient with the rows of one device's own, each as often.

    None where it has these, and where it is not known which it has to have: where the
    replicas looked up others, as some that are drawn; or where those of one device
    that are repeated add up to something else, as slices of other examples.
    """
    if not _are_inside(own, seen, *handed):
        return None
    if not isinstance(own, SparseRows):
        return densify(seen).astype(own.dtype) if isinstance(seen, SparseRows) else None
    if not own.indices.size:
        return None
    rows = np.sort(own.indices)
    if isinstance(seen, SparseRows) and np.array_equal(rows, np.sort(seen.indices)):
        return None
    if not np.array_equal(np.unique(rows), _find_touched(rows, handed)):
        return None
    wide, due = densify(seen), densify(own)
    if not np.isfinite(wide).all() or not np.isfinite(due).all():
        return None
    counts = own.count_rows()
    is_repeated = np.any(counts > 1)
    if np.any(wide[counts == 0]) or (is_repeated and not are_near(own, seen, None)):
        return None
    # Slices of one device's own, which add up to what was seen.
    most = np.maximum(counts, 1).reshape(-1, *(1 for _ in own.shape[1:]))
    values = own.values.astype(np.float64) + ((wide - due) / most)[own.indices]
    return replace(own, values=values.astype(own.values.dtype))


def move_sums(formed: Value, seen: Value, rng: np.random.Generator) -> Value:
    """A gradient whose rows are moved by as much as a sum of their slices may round.

    Args:
        formed: In the form of another one.
        seen: As it came.
        rng: Chooses the way of each number.
    """
    slices, most = 0, np.zeros(seen.shape)
    for value in (formed, seen):
        if isinstance(value, SparseRows):
            size = replace(value, values=np.abs(value.values))
            most = np.maximum(most, densify(size))
            slices += int(value.count_rows().max(initial=0))

    def move(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        far = most[formed.indices] if isinstance(formed, SparseRows) else most
        far = far * slices * 2.0 ** -count_digits(numbers.dtype.name)
        signs = rng.choice([-1.0, 1.0], size=far.shape)
        return (numbers + signs * far).astype(numbers.dtype)

    return change_numbers(formed, move)


def _are_inside(*values: Value) -> bool:
    return all(
        bool(np.all((value.indices >= 0) & (value.indices < value.shape[0])))
        for value in values
        if isinstance(value, SparseRows)
    )


def _find_touched(rows: Rows, handed: tuple[Value, ...]) -> Rows:
    """The rows that the replicas looked up; those of one device where none can tell."""
    sparse = [value.indices for value in handed if isinstance(value, SparseRows)]
    known = bool(sparse) and len(sparse) == len(handed)
    return np.unique(np.concatenate(sparse) if known else rows)
