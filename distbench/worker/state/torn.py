"""State that a step updates in parts: another step may come in between.

An op that reads and writes a variable does so at once, however many steps are in
flight. What is computed of what one op has read, and written by another one, leaves out
what other steps have written meanwhile, or takes it twice.
"""

from __future__ import annotations

from typing import Any

from distbench.worker.state.variables import VariableTable

_READS = ("ReadVariableOp", "ResourceGather")
_OVERWRITES = "AssignVariableOp"


def find_torn(graph: Any, table: VariableTable) -> list[str]:
    """Roles of state that a step reads by one op, to write by another.

    Args:
        graph: Of the step on one device; what it does in inner functions is not seen.
        table: The subject's variables.

    Returns:
        `variable`, `slot` and `iterations`, those that are. A variable of the model is
        read for its gradient: there only overwriting counts, not adding to it.
    """
    roles = {
        id(component.handle): variable.info.role
        for variable in table.state
        for component in variable.components
        if hasattr(component, "handle")
    }
    handles = {
        inner.name: roles[id(outer)]
        for outer, inner in graph.captures
        if id(outer) in roles
    }
    torn: set[str] = set()
    for op in graph.get_operations():
        name = op.inputs[0].name if op.inputs else ""
        role = handles.get(name)
        if role is None or op.type in _READS:
            continue
        overwrites = op.type == _OVERWRITES
        if (overwrites or role != "variable") and _depends_on(op, name):
            torn.add(role)
    return sorted(torn)


def list_overwrites(graph: Any) -> list[Any]:
    """The ops of a step that assign to a variable what comes of a reading of it.

    Args:
        graph: Of the step; what it does in inner functions is not seen.
    """
    return [
        op
        for op in graph.get_operations()
        if op.type == _OVERWRITES and _depends_on(op, op.inputs[0].name)
    ]


def _depends_on(op: Any, handle: str) -> bool:
    """Whether the other inputs of an op come of what another op read of a variable."""
    waiting = [tensor.op for tensor in op.inputs[1:]]
    seen = {op.name}
    while waiting:
        other = waiting.pop()
        if other.name in seen:
            continue
        seen.add(other.name)
        if other.type in _READS and other.inputs[0].name == handle:
            return True
        waiting += [tensor.op for tensor in other.inputs]
    return False
