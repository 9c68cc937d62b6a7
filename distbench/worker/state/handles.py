"""Which variables the ops of a graph read and write."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from typing import Any

from distbench.trace import VariableInfo
from distbench.worker.state.graphs import list_ops
from distbench.worker.state.variables import VariableTable

READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd")
_WRITES = ("Assign", "Resource")
"""How the type of every op begins that changes a variable: `AssignAddVariableOp`,
`ResourceApplyAdam`, `ResourceScatterUpdate`."""
_ASSIGN = re.compile(r"^Assign(Add|Sub)?VariableOp$")


def is_write(op: Any) -> bool:
    """Whether an op of a graph changes a variable that it takes."""
    return bool(op.type.startswith(_WRITES)) and op.type not in READS


def is_assign(op: Any) -> bool:
    """Whether an op assigns, adds or takes away all of a variable, its first input."""
    return bool(_ASSIGN.match(op.type))


class Handles:
    """Tells which variable a tensor in a graph stands for.

    Args:
        table: The subject's variables.
    """

    def __init__(self, table: VariableTable) -> None:
        self._infos = {
            id(component.handle): variable.info
            for variable in table.state
            for component in variable.components
            if hasattr(component, "handle")
        }

    @property
    def known(self) -> Set[int]:
        """Identities of the handles of all variables of the table."""
        return self._infos.keys()

    def name(self, known: Set[int]) -> set[str]:
        """Paths of the variables whose handles have these identities."""
        return {self._infos[one].path for one in known & self.known}

    def find(self, handle: Any) -> VariableInfo | None:
        """The variable of a tensor; None where it is none of the table.

        Args:
            handle: Of a graph, or of the body of a function, a condition or a loop.
        """
        if handle.dtype.name != "resource":
            return None  # a graph has thousands of these
        return self._infos.get(id(find_outermost(handle)))


def find_outermost(tensor: Any) -> Any:
    """What a tensor stands for in the body of a function, a condition or a loop.

    A variable's handle lies in no graph.
    """
    for outer, inner in getattr(getattr(tensor, "graph", None), "captures", ()):
        if inner is tensor:
            return find_outermost(outer)
    return tensor


def find_written(graph: Any, table: VariableTable) -> frozenset[str]:
    """Paths of the variables that a step may change, in whatever branch it does.

    Args:
        graph: Of the step on one device.
        table: The subject's variables.
    """
    handles = Handles(table)
    found = map(handles.find, list_written(graph))
    return frozenset(info.path for info in found if info is not None)


def find_written_late(graph: Any, table: VariableTable) -> frozenset[str]:
    """Paths of what a step may change once it has begun to change what trains.

    Only that can be made of an update: what comes before in the graph is run before
    where both use a variable. What calls a function may change all that it is given.

    Args:
        graph: Of the step on one device.
        table: The subject's variables.
    """
    handles = Handles(table)
    infos = {inner.name: handles.find(inner) for _, inner in graph.captures}
    found: set[str] = set()
    has_begun = False
    for op in graph.get_operations():
        if op.type in READS:
            continue
        taken = [info for i in op.inputs if (info := infos.get(i.name)) is not None]
        has_begun |= any(i.role == "variable" and i.trainable for i in taken)
        if has_begun:
            found.update(info.path for info in taken)
    return frozenset(found)


def list_captured(
    graph: Any, table: VariableTable
) -> Iterator[tuple[VariableInfo, list[Any]]]:
    """State that a traced step takes, each with what stands for it in the graph."""
    inner = {id(outer): tensor for outer, tensor in getattr(graph, "captures", ())}
    for variable in table.state:
        handles = [
            inner[id(component.handle)]
            for component in variable.components
            if id(getattr(component, "handle", None)) in inner
        ]
        if handles:
            yield variable.info, handles


def list_written(graph: Any) -> Iterator[Any]:
    """What ops take that change a variable, its handle among them."""
    for op in list_ops(graph):
        if is_write(op):
            yield from op.inputs  # Adam's op has its slots beside the variable
