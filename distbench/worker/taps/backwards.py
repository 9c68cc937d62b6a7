"""What a tensor of a traced step is computed of, one op back.

Not only the inputs of its op: what an inner function captured, what a step assigned to
a variable before it read it, and of what a strategy joined to reduce it at once the
part that comes out again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from distbench.worker.state.handles import is_assign

_COLLECTIVE = re.compile(r"^(Collective(Reduce|Gather|Bcast|AllToAll)|Nccl)")

Place = tuple[int, str]
"""A tensor by its graph and name; what has neither, by itself."""


class Backwards:
    """Goes back from tensors to what they are computed of.

    Args:
        unread: Variables of which not to follow what is assigned, by identity of their
            handles.
    """

    def __init__(self, unread: Collection[int] = ()) -> None:
        self._unread = unread
        self._captured: dict[int, dict[str, Any]] = {}
        self._writes: dict[int, Writes] = {}

    def list_sources(self, tensor: Any) -> list[Any]:
        """What a tensor of a graph is computed of; of an outer graph, if captured."""
        op = tensor.op
        graph = op.graph
        captured = self._list_captured(graph)
        if tensor.name in captured:
            return [captured[tensor.name]]
        if op.type == "IdentityN":
            # What a function with a gradient of its own gave, beside its arguments.
            return [op.inputs[tensor.value_index]]
        joined = _find_joined(op)
        if joined is not None:
            return [joined[tensor.value_index]]
        if id(graph) not in self._writes:
            self._writes[id(graph)] = Writes(graph, self._unread)
        return [*op.inputs, *self._writes[id(graph)].list_read(op)]

    def is_captured(self, tensor: Any) -> bool:
        """Whether a tensor of a graph stands for one from outside of it."""
        return tensor.name in self._list_captured(tensor.graph)

    def _list_captured(self, graph: Any) -> dict[str, Any]:
        """What a graph has from outside, by the names that stand for it there."""
        if id(graph) not in self._captured:
            captures = getattr(graph, "captures", ())
            self._captured[id(graph)] = {i.name: o for o, i in captures}
        return self._captured[id(graph)]


def is_communicated(tensor: Any) -> bool:
    """Whether a collective gave a tensor, by itself or joined with others."""
    op = tensor.op
    return _find_joined(op) is not None or bool(_COLLECTIVE.match(op.type))


class Writes:
    """What a graph assigns to variables.

    Args:
        graph: The graph.
        unread: Variables of which `list_read` leaves out what is assigned, by identity
            of their handles.
    """

    def __init__(self, graph: Any, unread: Collection[int] = ()) -> None:
        self._captures = [(o, i.name) for o, i in getattr(graph, "captures", ())]
        self._unread = {name for o, name in self._captures if id(o) in unread}
        self._ops: dict[str, list[Any]] = {}
        self._order: dict[str, int] = {}
        for place, op in enumerate(graph.get_operations()):
            self._order[op.name] = place
            if is_assign(op):
                self._ops.setdefault(op.inputs[0].name, []).append(op)

    def list_written(self, components: Iterable[Any]) -> list[Any]:
        """What is assigned to components of a variable."""
        return [op.inputs[1] for op in self._list_writes(components)]

    def find_first(self, components: Iterable[Any]) -> int | None:
        """Place of the first op that assigns to a variable; None where none does."""
        writes = self._list_writes(components)
        return min((self._order[op.name] for op in writes), default=None)

    def _list_writes(self, components: Iterable[Any]) -> list[Any]:
        handles = [getattr(component, "handle", None) for component in components]
        names = [n for o, n in self._captures if any(o is h for h in handles)]
        return [op for name in names for op in self._ops.get(name, ())]

    def list_read(self, op: Any) -> list[Any]:
        """What was assigned to the variables that an op is given, before it ran.

        Ops that use the same variable run in the order in which they were made.
        """
        found = []
        for handle in op.inputs:
            if handle.name in self._unread:
                continue
            for write in reversed(self._ops.get(handle.name, ())):
                if self._order[write.name] < self._order[op.name]:
                    found.append(write.inputs[1])
                    if write.type == "AssignVariableOp":
                        break
        return found


def _find_joined(op: Any) -> list[Any] | None:
    """What a strategy joined to reduce it at once, where an op takes that apart."""
    if op.type != "SplitV" or not _COLLECTIVE.match(op.inputs[0].op.type):
        return None
    joint = op.inputs[0].op.inputs[0].op
    parts = list(joint.inputs)[:-1]
    is_joint = joint.type == "ConcatV2" and len(parts) == len(op.outputs)
    return parts if is_joint else None


def is_eager(tensor: Any) -> bool:
    """Whether something was computed op by op."""
    return not hasattr(tensor, "graph")


def find_place(tensor: Any) -> Place:
    """A tensor by its graph and name; what has neither, by itself."""
    if is_eager(tensor):
        return id(tensor), ""
    return id(tensor.graph), tensor.name
