"""What a step decides by single numbers: conditions, limits and steps of a staircase.

A rule may change while it is used: plain descent that becomes an adaptive one, a clip
from some step on, a rate that is divided where a count is reached. What it does then is
another rule, and no step before shows it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
from tensorflow.python.framework import op_callbacks
from tensorflow.python.ops.control_flow_v2_func_graphs import (
    WhileBodyFuncGraph,
    WhileCondFuncGraph,
)

from distbench.worker.process.intercept import (
    hide_from_autograph,
    replace_attribute,
)
from distbench.worker.process.sources import is_own_file
from distbench.worker.state.components import read_component
from distbench.worker.state.graphs import list_called, list_inner, list_ops
from distbench.worker.taps.callers import find_caller, name_line
from distbench.worker.taps.sinks import create_sink, keep_from_xla

_CONDITIONS = re.compile("^(Less|Greater|Equal|NotEqual|Is|All$|Any$|Cast$)")
"""Types of the ops that make conditions; others join them, or pass them on."""
_LIMITS = ("Minimum", "Maximum")
_STRICT = ("Greater", "LessEqual")
"""Types whose answer is that of "less" where both sides are equal."""
_EQUAL = ("Equal", "NotEqual")
_COMPARING = (*_STRICT, *_EQUAL, "Less", "GreaterEqual", *_LIMITS)
_STAIRS = ("Floor", "FloorDiv", "Ceil", "Rint", "Round")
_ENOUGH = 4
"""From so many steps on a pace that does not change is no chance."""
_ALIKE = 1e-3
_LOOPS = (WhileBodyFuncGraph, WhileCondFuncGraph)
"""What a loop decides it decides many times in a step."""


def has_decisions(graph: Any) -> bool:
    """Whether a traced step decides anything by a single number.

    What is asserted of it decides nothing: another step is an error.
    """
    asserted: set[int] = set()
    for op in reversed(list(list_ops(graph))):  # what takes an op comes after it
        if _decides(op) or _is_condition(op):
            if _is_asserted(op, asserted):
                asserted.add(id(op))
            elif _decides(op):
                return True
    return False


class Decisions:
    """What a step decides, kept where it is traced within `watch`.

    Attributes:
        lines: What a message calls each decision: by the line of the program.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._sinks: list[Any] = []
        self._gaps: dict[int, tuple[str, Any]] = {}

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Inside, a step is traced that keeps what it decides.

        So are the functions that it calls: they have traces from other steps.
        """
        call = Function.__call__

        def call_anew(function: Any, *args: Any, **kwargs: Any) -> Any:
            # What XLA compiles cannot assign what is kept.
            is_known = tf.executing_eagerly() or function._jit_compile
            return call(
                function if is_known else function._clone(None), *args, **kwargs
            )

        hide_from_autograph(call_anew)
        op_callbacks.add_op_callback(self._see)
        try:
            with replace_attribute(Function, "__call__", call_anew):
                yield
        finally:
            op_callbacks.remove_op_callback(self._see)

    def read(self) -> dict[tuple[str, int], np.ndarray]:
        """What was decided last; one line may decide several times."""
        named = enumerate(zip(self.lines, self._sinks, strict=True))
        return {(line, place): read_component(sink) for place, (line, sink) in named}

    def read_gaps(self) -> dict[int, float]:
        """How far apart the two sides of the user's own comparisons were last."""
        read = ((n, read_component(sink)) for n, (_, sink) in self._gaps.items())
        return {n: float(gap) for n, gap in read if gap.size}  # of those it came to

    def foresee(self, gaps: Sequence[Mapping[int, float]]) -> dict[str, int]:
        """In which steps comparisons will turn out otherwise, by their lines.

        Known of those whose sides approach each other by as much in each step, as a
        count of steps does a number.

        Args:
            gaps: What `read_gaps` gave after each step, from the first one on.
        """
        found: dict[str, int] = {}
        for number, (kind, _) in self._gaps.items():
            apart = [gap[number] for gap in gaps if number in gap]
            step = (
                _find_turn(kind, np.array(apart)) if len(apart) == len(gaps) else None
            )
            if step is not None:
                line = self.lines[number]
                found[line] = min(step, found.get(line, step))
        return found

    def _see(
        self,
        _type: Any,
        _inputs: Any,
        _attrs: Any,
        outputs: Any,
        op_name: str = "",
        graph: Any = None,
    ) -> None:
        del op_name  # TensorFlow calls it so
        if graph is None or isinstance(graph, _LOOPS) or not outputs:
            return
        op = outputs[0].op
        if not _decides(op):
            return
        sink = create_sink(tf.float64, "/device:CPU:0")
        with graph.as_default(), keep_from_xla():
            is_limit = op.type in _LIMITS
            decided = tf.less(*op.inputs) if is_limit else op.outputs[0]
            value = tf.reshape(tf.cast(decided, tf.float64), [])
            sink.assign(value, read_value=False)
            if op.type in _COMPARING and _is_users(op) and _has_numbers(op):
                self._gaps[len(self._sinks)] = op.type, _keep_gap(op)
        self._sinks.append(sink)
        self.lines.append(_name_line(op))


def _name_line(op: Any) -> str:
    caller = find_caller(op)
    return f"what {name_line(caller) if caller else 'TensorFlow'} decides"


def _is_users(op: Any) -> bool:
    caller = find_caller(op)
    return caller is not None and is_own_file(caller.filename)


def _has_numbers(op: Any) -> bool:
    dtypes = [side.dtype for side in op.inputs]
    return all(dtype.is_floating or dtype.is_integer for dtype in dtypes)


def _keep_gap(op: Any) -> Any:
    sink = create_sink(tf.float64, "/device:CPU:0")
    left, right = (tf.reshape(tf.cast(side, tf.float64), []) for side in op.inputs)
    sink.assign(left - right, read_value=False)
    return sink


def _find_turn(kind: str, apart: np.ndarray) -> int | None:
    """The step in which a comparison turns, if that goes on as it went so far."""
    if len(apart) < _ENOUGH or not np.all(np.isfinite(apart)):
        return None
    changes = np.diff(apart)
    pace = changes[0]
    if pace == 0 or not np.allclose(changes, pace, rtol=_ALIKE, atol=0):
        return None
    meets = -apart[0] / pace
    if meets < len(apart):
        return None  # it has turned, or goes away from there
    if kind in _EQUAL:
        return round(meets) if abs(meets - round(meets)) < _ALIKE else None
    near = round(meets) if abs(meets - round(meets)) < _ALIKE else meets
    # Of a falling gap the answer changes as both are equal where it says "greater".
    is_past = (kind in _STRICT) == (pace > 0)
    return math.floor(near) + 1 if is_past else math.ceil(near)


def _decides(op: Any) -> bool:
    if len(op.outputs) != 1 or op.outputs[0].shape.num_elements() != 1:
        return False
    if op.outputs[0].dtype == tf.bool:
        return bool(_CONDITIONS.match(op.type))
    return op.type in (*_LIMITS, *_STAIRS)


def _is_asserted(op: Any, asserted: Collection[int]) -> bool:
    """Whether assertions alone take what an op gives, or what conditions make of it.

    Args:
        op: Which one.
        asserted: Identities of those of which that is known.
    """
    takers = _list_takers(op)
    return bool(takers) and all(
        _asserts(taker) or (_is_condition(taker) and id(taker) in asserted)
        for taker in takers
    )


def _list_takers(op: Any) -> list[Any]:
    return [taker for tensor in op.outputs for taker in tensor.consumers()]


def _is_condition(op: Any) -> bool:
    """Whether an op makes a condition, and does nothing by it."""
    is_pure = not op.op_def.is_stateful and not any(list_called(op))
    return is_pure and [tensor.dtype for tensor in op.outputs] == [tf.bool]


def _asserts(op: Any) -> bool:
    """Whether an op asserts, or a branch of it alone does, and it gives nothing."""
    if op.type == "Assert":
        return True
    acting = {inner.type for inner in list_inner(op) if inner.op_def.is_stateful}
    return acting == {"Assert"} and _leads_nowhere(op)


def _leads_nowhere(op: Any) -> bool:
    """Whether nobody takes what an op gives; by control alone it stops what follows."""
    given = {id(tensor) for tensor in getattr(op.graph, "outputs", ())}
    return not any(id(tensor) in given for tensor in op.outputs) and all(
        taker.type == "Identity" and _leads_nowhere(taker) for taker in _list_takers(op)
    )
