"""Lets gradient tapes tell which gradients they gave, and `tf.gradients` as well.

Users clip or reduce what a tape gave before they hand it over; what the replica itself
computed is seen at the tape alone. A gradient of one example is no replica's, so nobody
is told of it.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gradients_impl

from distbench.worker.process.intercept import Undo, hide_from_autograph
from distbench.worker.state.variables import VariableTable
from distbench.worker.taps.board import TapBoard
from distbench.worker.taps.elements import Elements
from distbench.worker.taps.terms import pick_term


def watch_tapes(board: TapBoard, table: VariableTable) -> Undo:
    """Have every tape tell the board of the gradients of the table's variables.

    Returns:
        A function that puts back what tapes and graphs differentiate by.
    """
    elements = Elements()
    within = threading.local()

    def gradient(original: Any, target: Any, sources: Any, *a: Any, **k: Any) -> Any:
        flat = tf.nest.flatten(sources)
        trains = any(map(table.has_gradient, flat))
        term = board.term if trains else None
        depth = getattr(within, "depth", 0)
        within.depth = depth + 1
        try:
            result = _differentiate(board, original, term, target, sources, *a, **k)
        finally:
            within.depth = depth
        if tf.distribute.get_replica_context() is None:
            return result
        board.remember_target(target, trains=trains)
        # What a tape asks of another one, as to compute layers anew, is its own part.
        is_changed = board.weight != 1 or board.corruption is not None
        if is_changed and depth == 0:
            given = [
                board.corrupt_gradient(board.weigh_gradient(value))
                if table.has_gradient(source)
                else value
                for source, value in zip(flat, tf.nest.flatten(result), strict=True)
            ]
            result = tf.nest.pack_sequence_as(result, given)
        if elements.is_traced:
            return result
        if board.fed:
            given = [
                board.feed_gradient(table.find_path(source), value)
                if table.has_gradient(source)
                else value
                for source, value in zip(flat, tf.nest.flatten(result), strict=True)
            ]
            result = tf.nest.pack_sequence_as(result, given)
        board.remember_result(result, sources, trains=trains)
        for source, value in zip(flat, tf.nest.flatten(result), strict=False):
            if table.has_gradient(source):
                board.remember_gradient(table.find_path(source), value)
        return result

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return gradient(unwatched.__get__(self), *args, **kwargs)

    unwatched, looked_up = tf.GradientTape.gradient, gradients_impl.gradients_util
    see_all = elements.watch()
    hide_from_autograph(method)
    tf.GradientTape.gradient = method
    gradients_impl.gradients_util = _stand_in(looked_up, gradient)

    def restore() -> None:
        gradients_impl.gradients_util = looked_up
        tf.GradientTape.gradient = unwatched
        see_all()

    return restore


def _stand_in(looked_up: Any, gradient: Callable[..., Any]) -> SimpleNamespace:
    """What `tf.gradients`, of both versions, looks up in the place of its own module.

    Functions and loops differentiate their bodies by that module too, which are no
    gradients of a replica: they are left alone.

    Args:
        looked_up: What is looked up there.
        gradient: Called as in the place of a tape's method, which it gets first.
    """

    def differentiate(ys: Any, xs: Any, grad_ys: Any = None, *a: Any, **k: Any) -> Any:
        def original(target: Any, sources: Any, output_gradients: Any = None) -> Any:
            return looked_up._GradientsHelper(
                target, sources, output_gradients, *a, **k
            )

        target = _take_only(ys)
        return gradient(original, target, xs, output_gradients=_take_only(grad_ys))

    names = {n: v for n, v in vars(looked_up).items() if not n.startswith("__")}
    return SimpleNamespace(**{**names, "_GradientsHelper": differentiate})


def _take_only(values: Any) -> Any:
    """The only one of a list, which a graph takes for it."""
    is_list = isinstance(values, (list, tuple)) and len(values) == 1
    return values[0] if is_list else values


def _differentiate(
    board: TapBoard,
    original: Any,
    number: int | None,
    target: Any,
    sources: Any,
    *a: Any,
    **k: Any,
) -> Any:
    """Ask a tape; of one term of a loss alone, where its number is given."""
    if number is None:
        return original(target, sources, *a, **k)
    call = inspect.signature(original).bind(target, sources, *a, **k)
    term, factor = pick_term(target, number)
    weights = tf.cast(factor, term.dtype)
    board.remember_term(tf.reduce_sum(term * weights))
    # What the gradients of the whole are multiplied by, those of each term are too.
    for given in tf.nest.flatten(call.arguments.get("output_gradients")):
        weights = weights if given is None else weights * given
    call.arguments["output_gradients"] = weights
    call.arguments["target"] = term
    return _fill_in(original(*call.args, **call.kwargs), sources)


def _fill_in(result: Any, sources: Any) -> Any:
    """Gradients, with zeros of what a term has no part in.

    Not by `unconnected_gradients`, which takes no variable of Keras 3.
    """
    filled = [
        tf.zeros(source.shape, source.dtype) if value is None else value
        for source, value in zip(
            tf.nest.flatten(sources), tf.nest.flatten(result), strict=True
        )
    ]
    return tf.nest.pack_sequence_as(result, filled)
