"""State that a step updates in parts: another step may come in between.

An op that reads and writes a variable does so at once, however many steps are in
flight. What is computed of what one op has read, and written by another one, leaves out
what other steps have written meanwhile, or takes it twice. So does a rule that writes a
slot and reads it again for its variable: the slot may be another step's by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distbench.trace import VariableInfo
from distbench.worker.state.variables import VariableTable

_READS = ("ReadVariableOp", "ResourceGather")
_OVERWRITES = ("AssignVariableOp", "ResourceScatterUpdate", "ResourceScatterNdUpdate")


def find_torn(graph: Any, table: VariableTable) -> list[str]:
    """Roles of state that a step reads by one op, to write by another.

    Args:
        graph: Of the step on one device; what it does in inner functions is not seen.
        table: The subject's variables.

    Returns:
        `variable`, `slot` and `iterations`, those that are. A variable of the model is
        read for its gradient: there only overwriting counts, not adding to it.
    """
    known = _find_captured(graph, table)
    torn = {"slot" for _ in list_read_back(graph, table)}
    for op, name in _list_uses(graph):
        if name not in known or op.type in _READS:
            continue
        role = known[name].role
        overwrites = op.type in _OVERWRITES
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
        for op, name in _list_uses(graph)
        if op.type in _OVERWRITES and _depends_on(op, name)
    ]


def list_read_back(graph: Any, table: VariableTable) -> list[tuple[Any, Any]]:
    """The ops by which a rule reads a variable's slot that it has written before.

    What the step reads again of a variable of the model, for a metric say, is not among
    them: it is no part of an update.

    Args:
        graph: Of the step; what it does in inner functions is not seen.
        table: The subject's variables.

    Returns:
        The last op that writes, and the one that reads.
    """
    known = _find_captured(graph, table)
    written: dict[str, Any] = {}
    found = []
    for op, name in _list_uses(graph):
        if name not in known or known[name].role != "slot" or not known[name].of:
            continue
        if op.type not in _READS:
            written[name] = op
        elif name in written:
            found.append((written[name], op))
    return found


def _find_captured(graph: Any, table: VariableTable) -> dict[str, VariableInfo]:
    """What is known of the variables of a graph, by the tensors that stand for them."""
    infos = {
        id(component.handle): variable.info
        for variable in table.state
        for component in variable.components
        if hasattr(component, "handle")
    }
    return {
        inner.name: infos[id(outer)]
        for outer, inner in graph.captures
        if id(outer) in infos
    }


def _list_uses(graph: Any) -> Iterator[tuple[Any, str]]:
    """The ops of a graph in their order, and the tensor that each takes first."""
    for op in graph.get_operations():
        if op.inputs:
            yield op, op.inputs[0].name


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
