"""State that a step uses as its scratch paper: it assigns all of it before it reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any

import tensorflow as tf

from distbench.trace.dtypes import find_dtype, is_floating
from distbench.worker.state.graphs import list_inner
from distbench.worker.state.handles import Handles, is_assign, is_write, list_captured
from distbench.worker.state.moving import MOVING
from distbench.worker.state.variables import VariableTable

_ASSIGN = "AssignVariableOp"
_SHAPES = ("Shape", "ShapeN", "Size", "Rank", "VariableShape", "ZerosLike", "OnesLike")
_STATE = (
    "ReadVariableOp AssignVariableOp AssignAddVariableOp AssignSubVariableOp "
    "ResourceScatterAdd ResourceScatterSub ResourceScatterUpdate"
)
_SMOOTH = (
    "Abs Add AddN AddV2 BatchMatMulV2 BiasAdd Cast Cholesky Cumsum Div DivNoNan Einsum "
    "EuclideanNorm L2Loss Log Log1p MatMul MatrixInverse MatrixSolve "
    "MatrixTriangularSolve Mean Mul MulNoNan Neg Pow Prod RealDiv Reciprocal Rsqrt "
    "Sqrt Square SquaredDifference Sub Sum UnsortedSegmentSum Xdivy"
)
_EXCHANGED = "CollectiveGatherV2 CollectiveReduceV2 NcclAllReduce"
_FINITE = (
    "All Any CheckNumerics CheckNumericsV2 IsFinite IsInf IsNan LogicalAnd LogicalNot "
    "LogicalOr"
)
_TELLING = MOVING.union(" ".join((_STATE, _SMOOTH, _EXCHANGED, _FINITE)).split())
"""Types of ops of which a step shows what they make of other numbers: those that move
numbers or add up the replicas', smooth functions, and those that ask whether numbers
are finite. A function that saturates, as `sigmoid`, hides what it is given as a limit
does."""


def list_scratch(
    graph: tf.Graph, table: VariableTable, handed: Iterable[Any]
) -> dict[str, Any]:
    """State that no step takes from the one before, and that a step makes others of.

    A gradient is kept there, say, until the optimizer is called. What a step assigns
    and makes nothing of is there to be looked at.

    Args:
        graph: The traced step. State that a function, a condition or a loop within it
            has before all is assigned is not among these.
        table: The subject's variables.
        handed: What optimizers were given as sums in it.

    Returns:
        By path, the first op by which the step may decide something: it compares it,
        rounds it, holds it against a limit, or does what nobody knows; None where there
        is none. What is made of a sum, or of other state, is not followed any further:
        these can be seen to be right.
    """
    places = {op.name: place for place, op in enumerate(graph.get_operations())}
    begun = [
        (info, handles)
        for info, handles in list_captured(graph, table)
        if info.synchronised and all(_begins_anew(handle, places) for handle in handles)
    ]
    anew = {info.path: handles for info, handles in begun}
    # A whole number may be anything: an index, or what is shifted by its bits.
    counts = {i.path for i, _ in begun if not is_floating(find_dtype(i.dtype))}
    inner = {id(handle): handle for handles in anew.values() for handle in handles}
    sums = {id(tensor) for tensor in handed}
    ends = sums | {id(tensor) for tensor in graph.outputs}
    others = Handles(table)
    list_changed, find_deciding = cache(_list_changed), cache(_find_deciding)
    found = {}
    for path, handles in anew.items():
        made, ops = _follow(handles, inner, sums)
        changed = (others.find(handle) for op in ops for handle in list_changed(op))
        if not ends.isdisjoint(map(id, made)) or any(
            info is not None and info.path not in anew for info in changed
        ):
            deciding = ops if path in counts else map(find_deciding, ops)
            found[path] = next(filter(None, deciding), None)
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


def _list_changed(op: Any) -> tuple[Any, ...]:
    """The variables that an op changes, or functions that it calls."""
    return tuple(o.inputs[0] for o in (op, *list_inner(op)) if is_write(o))


def _find_deciding(op: Any) -> Any:
    """An op, or one within it, that may do otherwise to numbers than to those it saw.

    None where there is none: of a smooth function all that it does is known where it
    was seen to be right.
    """
    if op.type in ("PartitionedCall", "StatefulPartitionedCall"):
        deciding = (_find_deciding(inner) for inner in list_inner(op) if inner.inputs)
        return next(filter(None, deciding), None)
    is_rounded = op.type == "Cast" and not op.outputs[0].dtype.is_floating
    return op if is_rounded or op.type not in _TELLING else None
