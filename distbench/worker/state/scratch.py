"""State that a step uses as its scratch paper: it assigns all of it before it reads."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import tensorflow as tf

from distbench.worker.state.carried import leads_itself
from distbench.worker.state.handles import list_captured
from distbench.worker.state.variables import VariableTable

_ASSIGN = "AssignVariableOp"


def list_scratch(graph: tf.Graph, table: VariableTable) -> tuple[str, ...]:
    """Paths of state that no step takes from the one before, and that a step uses.

    A gradient is kept there, say, until the optimizer is called. What a step assigns
    and makes nothing of is there to be looked at.

    Args:
        graph: The traced step. State that a function, a condition or a loop within it
            has before all is assigned is not among these.
        table: The subject's variables.
    """
    places = {op.name: place for place, op in enumerate(graph.get_operations())}
    return tuple(
        info.path
        for info, handles in list_captured(graph, table)
        if info.synchronised
        and all(_begins_anew(handle, places) for handle in handles)
        and not leads_itself(handles, graph.outputs)
    )


def _begins_anew(handle: Any, places: dict[str, int]) -> bool:
    """Whether the first op that has a variable assigns all of it.

    Ops that use the same variable run in the order in which they were made.
    """
    ops: Collection[Any] = handle.consumers()
    first = min(ops, key=lambda op: places[op.name], default=None)
    return first is not None and first.type == _ASSIGN and first.inputs[0] is handle
