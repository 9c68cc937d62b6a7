"""All state of one device read, and set: its variables by one call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from distbench.worker.state.components import read_component, write_component
from distbench.worker.state.lookup import read_table, write_table
from distbench.worker.state.variables import VariableTable
from distbench.worker.taps.collect import State

_FEWEST = 24
"""With fewer variables the call of a function costs more than as many single ops."""

LOOKUP = "lookup table"
"""In the place of a path, as which no variable can have it."""

_Key = tuple[str, int]


def read_lookups(tables: Sequence[Any]) -> State:
    """What lookup tables hold, as part of a state."""
    return {(LOOKUP, n): read_table(table) for n, table in enumerate(tables)}


def write_lookups(tables: Sequence[Any], state: State) -> None:
    """Have lookup tables hold what a state has for them."""
    for number, table in enumerate(tables):
        write_table(table, state[LOOKUP, number])


class PackedState:
    """The state of a table as one vector for each dtype.

    A step of a small model takes less time than an op for each of a hundred variables
    or shards does, before it and after it.

    Args:
        table: Whose variables lie on one device, and are all made.
        lookups: The subject's lookup tables.
    """

    def __init__(self, table: VariableTable, lookups: Sequence[Any] = ()) -> None:
        self._lookups = lookups
        self._components = {
            (variable.info.path, number): component
            for variable in table.state
            for number, component in enumerate(variable.components)
        }
        self._packs: list[_Pack] = []
        self._single = dict(self._components)
        if len(self._components) >= _FEWEST:
            groups: dict[Any, dict[_Key, Any]] = defaultdict(dict)
            for key, component in self._components.items():
                if component.shape.is_fully_defined():
                    groups[component.dtype.base_dtype][key] = self._single.pop(key)
            self._packs = [_Pack(dtype, group) for dtype, group in groups.items()]

    def read(self) -> State:
        """Every component's value, which stays as it is, and what tables hold."""
        state = {key: read_component(each) for key, each in self._single.items()}
        for pack in self._packs:
            state |= pack.read()
        found = {key: state[key] for key in self._components}
        return {**found, **read_lookups(self._lookups)}

    def write(self, state: State) -> None:
        """Set every component, and what tables hold."""
        for key, component in self._single.items():
            write_component(component, state[key])
        for pack in self._packs:
            pack.write(state)
        write_lookups(self._lookups, state)


class _Pack:
    """Variables of one dtype."""

    def __init__(self, dtype: Any, components: dict[_Key, Any]) -> None:
        self._shapes = {key: c.shape.as_list() for key, c in components.items()}
        sizes = [int(np.prod(shape)) for shape in self._shapes.values()]
        self._ends = np.cumsum(sizes)[:-1]
        handles = [component.handle for component in components.values()]

        def read() -> Any:
            values = [
                tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
                for handle in handles
            ]
            return tf.concat([tf.reshape(value, [-1]) for value in values], 0)

        def write(vector: Any) -> None:
            parts = tf.split(vector, sizes)
            for handle, part, shape in zip(
                handles, parts, self._shapes.values(), strict=True
            ):
                tf.raw_ops.AssignVariableOp(
                    resource=handle, value=tf.reshape(part, shape)
                )

        vector = tf.TensorSpec([sum(sizes)], dtype)
        self._read = tf.function(read, autograph=False).get_concrete_function()
        self._write = tf.function(write, autograph=False).get_concrete_function(vector)
        self._dtype = dtype.as_numpy_dtype

    def read(self) -> State:
        parts = np.split(np.asarray(self._read()._numpy()), self._ends)
        return {
            key: part.reshape(shape)
            for (key, shape), part in zip(self._shapes.items(), parts, strict=True)
        }

    def write(self, state: State) -> None:
        flat = [np.asarray(state[key], self._dtype).ravel() for key in self._shapes]
        self._write(tf.convert_to_tensor(np.concatenate(flat)))
