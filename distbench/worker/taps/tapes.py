"""Lets gradient tapes tell which gradients they gave.

Users clip or reduce what a tape gave before they hand it over; what the replica itself
computed is seen at the tape alone. A gradient of one example is no replica's, so nobody
is told of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from distbench.worker.process.intercept import Undo, hide_from_autograph
from distbench.worker.state.variables import VariableTable
from distbench.worker.taps.board import TapBoard
from distbench.worker.taps.elements import Elements
from distbench.worker.taps.terms import list_terms


def watch_tapes(board: TapBoard, table: VariableTable) -> Undo:
    """Have every tape tell the board of the gradients of the table's variables.

    Returns:
        A function that puts the method of the class back.
    """
    elements = Elements()

    def gradient(original: Any, target: Any, sources: Any, *a: Any, **k: Any) -> Any:
        flat = tf.nest.flatten(sources)
        trains = any(map(table.has, flat))
        asked, other = _choose_term(board.term if trains else None, target, k)
        result = original(asked, sources, *a, **other)
        if tf.distribute.get_replica_context() is None:
            return result
        board.remember_target(target, trains=trains)
        if board.corruption is not None:
            given = [
                board.corrupt_gradient(value) if table.has(source) else value
                for source, value in zip(flat, tf.nest.flatten(result), strict=True)
            ]
            result = tf.nest.pack_sequence_as(result, given)
        if elements.is_traced:
            return result
        if board.feeding == "local_gradient":
            given = [
                board.feed_gradient(table.find_path(source), value)
                if table.has(source)
                else value
                for source, value in zip(flat, tf.nest.flatten(result), strict=True)
            ]
            result = tf.nest.pack_sequence_as(result, given)
        for source, value in zip(flat, tf.nest.flatten(result), strict=False):
            if table.has(source):
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


def _choose_term(
    number: int | None, target: Any, named: Mapping[str, Any]
) -> tuple[Any, Mapping[str, Any]]:
    """What to ask a tape for, where one term of a loss is meant in place of all."""
    if number is None or "output_gradients" in named:
        return target, named
    term, factor = list_terms(target)[number]
    return term, {
        "output_gradients": tf.cast(factor, term.dtype),
        "unconnected_gradients": tf.UnconnectedGradients.ZERO,
    }
