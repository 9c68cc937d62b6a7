"""State of the replicas' own that a step only carries on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import tensorflow as tf

from distbench.worker.state.handles import list_captured
from distbench.worker.state.variables import VariableTable

_READ = "ReadVariableOp"
_KEEP = "AssignVariableOp"
_ADD = ("AssignAddVariableOp", "AssignSubVariableOp")


def list_carried(graph: tf.Graph, table: VariableTable) -> tuple[str, ...]:
    """Paths of the replicas' own state that a step makes nothing of.

    But for what the state holds next: a moving average for later use, or a number of
    examples. It counts by what is read of all copies once. Of an accumulator something
    is made, in whatever step, and each copy counts.

    Args:
        graph: The traced step. Where a function, a condition or a loop within it has
            the variable, something may be made of it.
        table: The subject's variables.
    """
    return tuple(
        info.path
        for info, handles in list_captured(graph, table)
        if not info.synchronised and _leads_itself(handles, graph.outputs)
    )


def _leads_itself(handles: Collection[Any], outputs: Iterable[Any]) -> bool:
    """Whether all that is made of some variables ends in the same variables."""
    own = {id(handle) for handle in handles}
    given = {id(tensor) for tensor in outputs}
    waiting, seen = list(handles), set(own)
    while waiting:
        tensor = waiting.pop()
        if id(tensor) in given:
            return False
        for op in tensor.consumers():
            if op.type in (_KEEP, *_ADD) and id(op.inputs[0]) in own:
                continue
            # What has a state may do anything with it: a sum, a print, a branch.
            if op.type != _READ and op.op_def.is_stateful:
                return False
            new = [output for output in op.outputs if id(output) not in seen]
            seen.update(map(id, new))
            waiting += new
    return True
