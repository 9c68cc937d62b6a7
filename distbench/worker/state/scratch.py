"""State that a step uses as its scratch paper: it assigns all of it before it reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from distbench.worker.state.graphs import is_python, list_inner
from distbench.worker.state.handles import Handles, is_assign, is_write, list_captured
from distbench.worker.state.variables import VariableTable

_ASSIGN = "AssignVariableOp"
_SHAPES = ("Shape", "ShapeN", "Size", "Rank", "VariableShape", "ZerosLike", "OnesLike")
_LIMITS = ("Minimum", "Maximum", "ClipByValue", "Relu6")
_STAIRS = ("Floor", "FloorDiv", "FloorMod", "Ceil", "Rint", "Round")
_OF_NO_SIZE = ("IsFinite", "IsNan", "IsInf", "ArgMax", "ArgMin", "TopKV2")
"""Types of ops that answer alike, however many times as large all is."""


def list_scratch(
    graph: tf.Graph, table: VariableTable, handed: Iterable[Any]
) -> dict[str, bool]:
    """State that no step takes from the one before, and that a step makes others of.

    A gradient is kept there, say, until the optimizer is called. What a step assigns
    and makes nothing of is there to be looked at.

    Args:
        graph: The traced step. State that a function, a condition or a loop within it
            has before all is assigned is not among these.
        table: The subject's variables.
        handed: What optimizers were given as sums in it.

    Returns:
        By path, whether the step decides anything by it: compares it, rounds it, or
        holds it against a limit. What is made of a sum, or of other state, is not
        followed any further: these can be seen to be right.
    """
    places = {op.name: place for place, op in enumerate(graph.get_operations())}
    anew = {
        info.path: handles
        for info, handles in list_captured(graph, table)
        if info.synchronised and all(_begins_anew(handle, places) for handle in handles)
    }
    inner = {id(handle): handle for handles in anew.values() for handle in handles}
    sums = {id(tensor) for tensor in handed}
    ends = sums | {id(tensor) for tensor in graph.outputs}
    others = Handles(table)
    found = {}
    for path, handles in anew.items():
        made, ops = _follow(handles, inner, sums)
        changed = (others.find(handle) for op in ops for handle in _list_changed(op))
        if not ends.isdisjoint(map(id, made)) or any(
            info is not None and info.path not in anew for info in changed
        ):
            found[path] = any(map(_decides, ops))
    return found


def _begins_anew(handle: Any, places: Mapping[str, int]) -> bool:
    """Whether the first op that has a variable assigns all of it.

    Ops that use the same variable run in the order in which they were made.
    """
    ops: Collection[Any] = handle.consumers()
    first = min(ops, key=lambda op: places[op.name], default=None)
    return first is not None and first.type == _ASSIGN and first.inputs[0] is handle


def _follow(
    handles: Iterable[Any], scratch: Mapping[int, Any], sums: Collection[int]
) -> tuple[list[Any], list[Any]]:
    """What is made of variables: tensors, and the ops that take them.

    Args:
        handles: Of the variables.
        scratch: Handles of what is assigned to be used in the same step, by identity.
        sums: Identities of tensors that are followed no further.
    """
    made, ops = list(handles), []
    seen = set(map(id, made))
    for tensor in made:  # which grows
        if id(tensor) in sums:
            continue
        for op in tensor.consumers():
            assigns = is_assign(op)
            if op.type in _SHAPES or (assigns and op.inputs[0] is tensor):
                continue
            ops.append(op)
            new = op.outputs
            if assigns:
                new = [scratch[id(i)] for i in op.inputs[:1] if id(i) in scratch]
            new = [one for one in new if id(one) not in seen]
            seen.update(map(id, new))
            made += new
    return made, ops


def _list_changed(op: Any) -> Iterator[Any]:
    """The variables that an op changes, or functions that it calls."""
    yield from (o.inputs[0] for o in (op, *list_inner(op)) if is_write(o))


def _decides(op: Any) -> bool:
    """Whether an op may treat numbers in another way that are N times as large."""
    return any(is_python(o) or _divides(o) for o in (op, *list_inner(op)))


def _divides(op: Any) -> bool:
    if op.type in _OF_NO_SIZE:
        return False
    numbers = [given for given in op.inputs if given.dtype.is_floating]
    answers = any(o.dtype.is_bool or o.dtype.is_integer for o in op.outputs)
    if not (op.type in (*_LIMITS, *_STAIRS) or (numbers and answers)):
        return False
    # On which side of 0 a number lies does not depend on how large it is.
    known = map(tf.get_static_value, numbers)
    return not any(value is not None and not np.any(value) for value in known)
