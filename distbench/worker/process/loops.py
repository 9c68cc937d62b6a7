"""Loops over tensors: how often their passes run, and each of them traced by itself."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.operators import control_flow

_MOST = 32
"""So many passes are traced one by one; longer loops stay what they are."""

Loop = Callable[..., None]


class Loops:
    """Watches what AutoGraph makes of `for` over tensors whose length is known.

    Attributes:
        unrolls: Whether each pass is traced by itself. A loop in a graph is a graph of
            its own, whose tensors nothing outside can see. Of `for i in tf.range(k)`
            the step then has k times the same ops, and computes the same. Loops that
            may end early, and `while`, stay as they are.
    """

    def __init__(self) -> None:
        self.unrolls = False
        self._passes = 1

    def watch(self) -> None:
        """Begin. Never undone: the process runs one subject and ends."""
        for name, count, list_items in (
            ("_tf_range_for_stmt", _count_numbers, _list_numbers),
            ("_known_len_tf_for_stmt", _count_rows, tf.unstack),
        ):
            original = getattr(control_flow, name)
            run = functools.partial(self._run, original, count, list_items)
            setattr(control_flow, name, run)

    def count_passes(self) -> int:
        """How often what is traced now runs in a step; 1 where that is not known."""
        return self._passes

    def _run(
        self,
        original: Loop,
        count: Callable[[Any], int | None],
        list_items: Callable[[Any], Sequence[Any]],
        iterated: Any,
        extra_test: Any,
        *others: Any,
    ) -> None:
        passes = count(iterated) if extra_test is None else None
        if self.unrolls and passes is not None and passes <= _MOST:
            control_flow._py_for_stmt(list_items(iterated), extra_test, *others)
            return
        with self._enter(passes or 1):
            original(iterated, extra_test, *others)

    @contextmanager
    def _enter(self, passes: int) -> Iterator[None]:
        around = self._passes
        self._passes *= passes
        try:
            yield
        finally:
            self._passes = around


def _count_numbers(numbers: Any) -> int | None:
    known = tf.get_static_value(numbers)
    return None if known is None else len(known)


def _count_rows(rows: Any) -> int | None:
    return rows.shape[0] if rows.shape.rank else None


def _list_numbers(numbers: Any) -> Sequence[Any]:
    return [tf.constant(n, numbers.dtype) for n in tf.get_static_value(numbers)]
