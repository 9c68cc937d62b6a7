"""State that a step updates in parts: another step may come in between.

An op that reads and writes a variable does so at once, however many steps are in
flight. What is computed of what one op has read, and written by another one, leaves out
what other steps have written meanwhile, or takes it twice. So does a rule that writes a
slot and reads it again for its variable: the slot may be another step's by then. And
what is added to a sum between its last reading and where it begins anew is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from distbench.worker.state.graphs import list_ops
from distbench.worker.state.handles import READS, Handles, is_write
from distbench.worker.state.variables import VariableTable

_OVERWRITES = ("AssignVariableOp", "ResourceScatterUpdate", "ResourceScatterNdUpdate")

_ADDS = ("AssignAddVariableOp", "AssignSubVariableOp")


def find_torn(graph: Any, table: VariableTable) -> list[str]:
    """Paths of state that a step reads by one op, to write by another.

    Args:
        graph: Of the step on one device.
        table: The subject's variables.

    Returns:
        Those of variables, slots and counters, sorted.
    """
    parts = UpdatesInParts(table)
    found = [
        parts.handles.find(op.inputs[0])
        for op in list_ops(graph)
        if parts.find_first(op) is not None
    ]
    return sorted({info.path for info in found if info is not None})


def find_led(graph: Any, table: VariableTable, torn: Collection[str]) -> list[str]:
    """Paths of state that is changed by what a step reads again of torn state.

    What it reads before it writes is its view of all of that, old or not, as a gradient
    is of all weights. What it reads after that was to be its own, and may be another's.

    Args:
        graph: Of the step on one device.
        table: The subject's variables.
        torn: See `find_torn`.

    Returns:
        Those of other variables, slots and counters, sorted.
    """
    handles = Handles(table)
    written: set[tuple[int, str]] = set()
    again: set[tuple[int, str]] = set()
    led: set[str] = set()
    for op in list_ops(graph):
        info = handles.find(op.inputs[0]) if op.inputs else None
        if info is None:
            continue
        place = id(op.graph), op.inputs[0].name
        if op.type in READS:
            if place in written:
                again.add((id(op.graph), op.name))
        elif not is_write(op):
            continue
        elif info.path in torn:
            written.add(place)
        elif _comes_of(op, lambda other: (id(other.graph), other.name) in again):
            led.add(info.path)
    return sorted(led)


class UpdatesInParts:
    """Tells which ops are the second part of an update, if asked in their order.

    A variable of the model is read for its gradient: there only overwriting counts, not
    adding to it. What the step reads again of one, for a metric say, is no part of an
    update. What it adds to and overwrites, it overwrites as what it read last.

    Args:
        table: The subject's variables.

    Attributes:
        handles: Tells which of them a tensor stands for.
    """

    def __init__(self, table: VariableTable) -> None:
        self.handles = Handles(table)
        self._written: dict[tuple[int, str], Any] = {}
        self._read: dict[tuple[int, str], Any] = {}
        self._added: set[str] = set()

    def find_first(self, op: Any) -> Any:
        """The op or tensor of the first part, after which this op is the second.

        Args:
            op: Of a graph, or of the body of a function, a condition or a loop in it.

        Returns:
            None where the op is no second part.
        """
        info = self.handles.find(op.inputs[0]) if op.inputs else None
        if info is None:
            return None
        handle = op.inputs[0].name
        place = id(op.graph), handle
        if op.type in READS:
            self._read[place] = op
            return self._written.get(place)
        if op.type in _ADDS:
            self._added.add(info.path)
        if info.role == "slot" and info.of:
            self._written[place] = op
        overwrites = op.type in _OVERWRITES
        if (overwrites or info.role != "variable") and _depends_on(op, handle):
            return op.inputs[-1]
        if overwrites and info.path in self._added:
            return self._read.get(place)
        return None


def _depends_on(op: Any, handle: str) -> bool:
    """Whether the other inputs of an op come of what another op read of a variable."""
    return _comes_of(
        op, lambda other: other.type in READS and other.inputs[0].name == handle
    )


def _comes_of(op: Any, is_source: Callable[[Any], bool]) -> bool:
    """Whether the inputs of an op but its first come of such an op, of its graph."""
    waiting = [tensor.op for tensor in op.inputs[1:]]
    seen = {op.name}
    while waiting:
        other = waiting.pop()
        if other.name in seen:
            continue
        seen.add(other.name)
        if is_source(other):
            return True
        waiting += [tensor.op for tensor in other.inputs]
    return False
