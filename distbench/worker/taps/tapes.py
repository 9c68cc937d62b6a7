"""Lets gradient tapes tell which gradients they gave.

Users clip or reduce what a tape gave before they hand it over; what the replica itself
computed is seen at the tape alone. A gradient of one example is no replica's, so nobody
is told of it.
"""

from __future__ import annotations

import inspect
from typing import Any

import tensorflow as tf

from distbench.worker.process.intercept import Undo, hide_from_autograph
from distbench.worker.state.variables import VariableTable
from distbench.worker.taps.board import TapBoard
from distbench.worker.taps.elements import Elements
from distbench.worker.taps.terms import pick_term


def watch_tapes(board: TapBoard, table: VariableTable) -> Undo:
    """Have every tape tell the board of the gradients of the table's variables.

    Returns:
        A function that puts the method of the class back.
    """
    elements = Elements()

    def gradient(original: Any, target: Any, sources: Any, *a: Any, **k: Any) -> Any:
        flat = tf.nest.flatten(sources)
        trains = any(map(table.has_gradient, flat))
        term = board.term if trains else None
        result = _differentiate(board, original, term, target, sources, *a, **k)
        if tf.distribute.get_replica_context() is None:
            return result
        board.remember_target(target, trains=trains)
        if board.corruption is not None:
            given = [
                board.corrupt_gradient(value) if table.has_gradient(source) else value
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

    unwatched = tf.GradientTape.gradient
    see_all = elements.watch()
    hide_from_autograph(method)
    tf.GradientTape.gradient = method

    def restore() -> None:
        tf.GradientTape.gradient = unwatched
        see_all()

    return restore


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
