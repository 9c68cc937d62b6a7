"""State that a step uses as its scratch paper: it assigns all of it before it reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any

import tensorflow as tf

from distbench.trace.dtypes import find_dtype, is_floating
from distbench.worker.state.followed import Follower
from distbench.worker.state.graphs import list_inner
from distbench.worker.state.handles import (
    Handles,
    find_outermost,
    is_write,
    list_captured,
)
from distbench.worker.state.moving import MOVING
from distbench.worker.state.variables import VariableTable

_ASSIGN = "AssignVariableOp"
_STATE = (
    "ReadVariableOp AssignVariableOp AssignAddVariableOp AssignSubVariableOp "
    "ResourceScatterAdd ResourceScatterSub ResourceScatterUpdate"
)
_SMOOTH = (
    "Abs Add AddN AddV2 BatchMatMulV2 BiasAdd Cholesky Complex Conj Cumsum Div "
    "DivNoNan Einsum EuclideanNorm FFT IFFT IRFFT Imag L2Loss Log Log1p MatMul "
    "MatrixInverse MatrixSolve MatrixTriangularSolve Mean Mul MulNoNan Neg Pow Prod "
    "RFFT Real RealDiv Reciprocal Rsqrt Sqrt Square SquaredDifference Sub Sum "
    "UnsortedSegmentSum Xdivy"
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
    sums = {id(tensor) for tensor in handed}
    ends = sums | {id(tensor) for tensor in graph.outputs}
    scratch = {id(find_outermost(h)): h for handles in anew.values() for h in handles}
    follower, others = Follower(scratch, sums), Handles(table)

    @cache
    def goes_on(op: Any) -> bool:
        """Whether an op, or a branch or loop that it has, changes any other state."""
        written = (one.inputs[0] for one in (op, *list_inner(op)) if is_write(one))
        changed = filter(None, map(others.find, written))
        return any(info.path not in anew for info in changed)

    found = {}
    for path, handles in anew.items():
        made = follower.follow_all(handles)
        if not ends.isdisjoint(made.tensors) or any(map(goes_on, made.ops)):
            is_deciding = _may_decide if path not in counts else bool
            found[path] = next(filter(is_deciding, made.ops), None)
    return found


def _begins_anew(handle: Any, places: Mapping[str, int]) -> bool:
    """Whether the first op that has a variable assigns all of it.

    Ops that use the same variable run in the order in which they were made.
    """
    ops: Collection[Any] = handle.consumers()
    first = min(ops, key=lambda op: places[op.name], default=None)
    return first is not None and first.type == _ASSIGN and first.inputs[0] is handle


def _may_decide(op: Any) -> bool:
    """Whether an op may do otherwise to numbers than to those that it saw.

    Of a smooth function all that it does is known where it was seen to be right.
    """
    if op.type == "Cast":
        given = op.outputs[0].dtype
        return not (given.is_floating or given.is_complex)
    return op.type not in _TELLING
