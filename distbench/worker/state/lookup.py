"""Lookup tables that steps may change: what they hold, as one array."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

TABLES = (
    tf.lookup.experimental.MutableHashTable,
    tf.lookup.experimental.DenseHashTable,
)
_END = b"."
"""Stands behind each string: NumPy takes bytes of 0 at the end of one for nothing."""

_Held = npt.NDArray[Any]


def read_table(table: Any) -> _Held:
    """What a table holds: a record for each key, in the order of the keys."""
    keys, values = (_pack(part) for part in _export(table))
    kinds = [
        (name, part.dtype, part.shape[1:])
        for name, part in (("key", keys), ("value", values))
    ]
    held = np.empty(len(keys), kinds)
    held["key"], held["value"] = keys, values
    rows = keys.reshape(len(keys), int(np.prod(keys.shape[1:])))
    return held[np.lexsort(rows.T[::-1])] if rows.size else held


def write_table(table: Any, held: _Held) -> None:
    """Have a table hold this, and nothing else."""
    table.remove(_export(table)[0])
    if len(held):  # an empty dense table takes no empty rows
        table.insert(_unpack(held["key"]), _unpack(held["value"]))


def _export(table: Any) -> tuple[_Held, _Held]:
    """Keys and values; a dense table has a key for what is free, and what was freed."""
    keys, values = (part.numpy() for part in table.export())
    for name in ("_empty_key", "_deleted_key"):
        if (free := getattr(table, name, None)) is not None:
            free = tf.convert_to_tensor(free, table.key_dtype).numpy()
            # What is inserted as a scalar comes out as a row of one.
            keys = keys.reshape(-1, *np.shape(free))
            values = values.reshape(-1, *table._value_shape)
            is_held = np.any(keys != free, axis=tuple(range(1, keys.ndim)))
            keys, values = keys[is_held], values[is_held]
    return keys, values


def add_to_table(now: _Held, after: _Held, before: _Held) -> _Held:
    """What a step made of what it found in a table, in what the table holds by now.

    Numbers are added to, those of new keys from 0 on; whatever else there is, is set.

    Args:
        now: What it holds.
        after: What the step left.
        before: What it had found.
    """
    found, left, held = (
        {_name(key): (key, value) for key, value in part}
        for part in (before, after, now)
    )
    for name in found.keys() - left.keys():
        held.pop(name, None)
    for name, (key, value) in left.items():
        _, old = found.get(name, (key, None))
        if old is not None and np.array_equal(old, value):
            continue
        if name in held and np.asarray(value).dtype.kind in "iuf":
            value = held[name][1] + (value - (0 if old is None else old))
        held[name] = key, value
    kinds = np.promote_types(now.dtype, after.dtype)
    return np.array([held[name] for name in sorted(held)], kinds)


def _name(key: Any) -> Any:
    return tuple(key.ravel().tolist()) if isinstance(key, np.ndarray) else key.item()


def _pack(part: _Held) -> _Held:
    if part.dtype != object:
        return part
    flat = [text + _END for text in part.ravel()]
    return np.array(flat, None if flat else "S1").reshape(part.shape)


def _unpack(part: _Held) -> Any:
    if part.dtype.kind != "S":
        return part
    flat = [text.removesuffix(_END) for text in part.ravel().tolist()]
    return tf.reshape(tf.constant(flat, tf.string), part.shape)
