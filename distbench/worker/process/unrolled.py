"""Loops over tensors, traced as many times as they are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.operators import control_flow

_MOST = 32
"""So many passes are traced one by one; longer loops stay what they are."""

Loop = Callable[..., None]


def unroll_loops() -> None:
    """Have AutoGraph trace each pass of a loop whose length is known by itself.

    A loop in a graph is a graph of its own, whose tensors nothing outside can see. Of
    `for i in tf.range(k)` the step then has k times the same ops, and computes the
    same. Loops that may end early, and `while`, stay as they are. Never undone.
    """
    for name, list_items in (
        ("_tf_range_for_stmt", _list_numbers),
        ("_known_len_tf_for_stmt", _list_rows),
    ):
        original = getattr(control_flow, name)
        if not hasattr(original, "unrolls"):
            setattr(control_flow, name, _unroll(original, list_items))


def _unroll(original: Loop, list_items: Callable[[Any], Sequence[Any] | None]) -> Loop:
    def loop(iterated: Any, extra_test: Any, *others: Any) -> None:
        items = list_items(iterated) if extra_test is None else None
        if items is None:
            original(iterated, extra_test, *others)
        else:
            control_flow._py_for_stmt(items, extra_test, *others)

    loop.unrolls = True  # type: ignore[attr-defined]
    return loop


def _list_numbers(numbers: Any) -> Sequence[Any] | None:
    known = tf.get_static_value(numbers)
    if known is None or len(known) > _MOST:
        return None
    return [tf.constant(number, numbers.dtype) for number in known]


def _list_rows(rows: Any) -> Sequence[Any] | None:
    count = rows.shape[0]
    return tf.unstack(rows) if count is not None and count <= _MOST else None
