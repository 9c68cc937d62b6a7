"""Arithmetic on recorded gradients, dense ones and slices alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from distbench.trace import SparseRows, Value

Gradients = dict[str, Value]


def to_array(value: Value) -> np.ndarray:
    if isinstance(value, SparseRows):
        dense = np.zeros(value.shape, value.values.dtype)
        np.add.at(dense, value.indices, value.values)
        return dense
    return value


def scale(value: Value, factor: float) -> Any:
    if isinstance(value, SparseRows):
        return replace(value, values=scale(value.values, factor))
    return (value * value.dtype.type(factor)).astype(value.dtype)


def clip_norm(value: Value, norm: float) -> Any:
    size = float(np.linalg.norm(to_array(value).astype(np.float64)))
    return scale(value, norm / size) if size > norm else value


def map_values(value: Value, change: Callable[[np.ndarray], np.ndarray]) -> Any:
    if isinstance(value, SparseRows):
        return replace(value, values=change(value.values).astype(value.values.dtype))
    return change(value).astype(value.dtype)


def add_values(values: Sequence[Value]) -> Any:
    if all(isinstance(v, SparseRows) for v in values):
        return SparseRows(
            indices=np.concatenate([v.indices for v in values]),
            values=np.concatenate([v.values for v in values]),
            shape=values[0].shape,
        )
    total = to_array(values[0])
    for value in values[1:]:
        total = (total + to_array(value)).astype(total.dtype)
    return total


def keep_slices(value: Value, kept: str) -> Value:
    """Of a row's slices the `last` one alone, the `first` one, or their `mean`."""
    if not isinstance(value, SparseRows):
        return value
    found: dict[int, list[np.ndarray]] = {}
    for row, part in zip(value.indices, value.values, strict=True):
        found.setdefault(int(row), []).append(part)
    pick = {"last": lambda p: p[-1], "first": lambda p: p[0], "mean": np.mean}[kept]
    parts = [pick(p, axis=0) if kept == "mean" else pick(p) for p in found.values()]
    rows = np.array(list(found), value.indices.dtype)
    values = np.array(parts, value.values.dtype).reshape(-1, *value.shape[1:])
    return replace(value, indices=rows, values=values)


def add_up(gradients: Sequence[Gradients]) -> Gradients:
    return {k: add_values([g[k] for g in gradients]) for k in gradients[0]}


def measure_all(gradients: Gradients) -> float:
    """The global norm."""
    arrays = [to_array(g).astype(np.float64) for g in gradients.values()]
    return float(np.sqrt(sum(np.sum(array**2) for array in arrays)))


def clip_all(gradients: Gradients, limit: float) -> Gradients:
    """Dense, and scaled down to a global norm."""
    factor = min(1.0, limit / measure_all(gradients))
    return {path: scale(to_array(g), factor) for path, g in gradients.items()}
