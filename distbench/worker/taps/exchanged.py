"""What collectives give on one device: kept in one run of a step, and given in others.

A replica takes counts, frequencies or limits of all examples from a collective. On one
device the global batch alone has these; a shard that is given them computes what its
replica should.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import tensorflow as tf

from distbench.worker.process.intercept import hide_from_autograph
from distbench.worker.taps.board import TapBoard
from distbench.worker.taps.exchange import is_made_of
from distbench.worker.taps.sinks import create_sink, keep_from_xla

_COLLECTIVES = ("all_reduce", "all_gather")
_Mode = Literal["noticed", "kept", "given", "scaled", "again"]


class Exchanged:
    """Stands before the collectives of a replica while steps are traced.

    Calls are known by their order, which is that of the program: a step that comes to
    another number of them is not the one that was kept.

    Args:
        board: Knows whether a tape has given a gradient yet.

    Attributes:
        is_early: Whether a collective was called before the first gradient, so that
            losses may be made of what it gives.
    """

    def __init__(self, board: TapBoard) -> None:
        self._board = board
        self._mode: _Mode = "noticed"
        self._kept: list[tuple[Any, tf.TensorShape]] = []
        self._called = 0
        self._factor = 1.0
        self._scaled: list[Any] = []
        self._reduced: list[Any] = []
        self.is_early = False

    @contextmanager
    def notice(self) -> Iterator[None]:
        """Inside, it is looked whether the traced step calls a collective early."""
        with self._intercept("noticed"):
            yield

    @contextmanager
    def keep(self) -> Iterator[None]:
        """Inside, a step is traced that keeps what its collectives give."""
        self._kept.clear()
        with self._intercept("kept"):
            yield

    @contextmanager
    def give(self) -> Iterator[None]:
        """Inside, a step is traced whose collectives give what was kept last."""
        with self._intercept("given"):
            yield

    @contextmanager
    def scale(self, factor: float) -> Iterator[None]:
        """Inside, a step is traced whose early collectives give so many times that."""
        self._factor = factor
        self._scaled.clear()
        with self._intercept("scaled"):
            yield

    @contextmanager
    def scale_again(self, factor: float) -> Iterator[None]:
        """Inside, a step is traced that counts so often what it reduces once more.

        That is what a collective gives of what another one gave before: every replica
        has the whole of it already.
        """
        self._factor = factor
        self._scaled.clear()
        self._reduced.clear()
        with self._intercept("again"):
            yield

    @property
    def has_scaled(self) -> bool:
        """Whether the step that was traced last scales anything."""
        return bool(self._scaled)

    @property
    def is_complete(self) -> bool:
        """Whether the step that was traced last made all calls of the one kept.

        One that has a trace already makes none.
        """
        return self._called in (0, len(self._kept))

    @contextmanager
    def _intercept(self, mode: _Mode) -> Iterator[None]:
        self._mode, self._called = mode, 0
        owners = {name: _find_owner(name) for name in _COLLECTIVES}
        found = [(owner, name, vars(owner)[name]) for name, owner in owners.items()]
        for owner, name, original in found:
            setattr(owner, name, self._make_method(original))
        try:
            yield
        finally:
            for owner, name, original in found:
                setattr(owner, name, original)

    def _make_method(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def collective(context: Any, *args: Any, **kwargs: Any) -> Any:
            is_early = not self._board.trained_by.get(self._board.find_replica())
            self.is_early |= is_early
            result = original(context, *args, **kwargs)
            # What is reduced again, as it is, has its factor already.
            is_new = not any(map(self._has_scaled, tf.nest.flatten((args, kwargs))))
            if self._mode == "scaled" and is_early and is_new:
                return tf.nest.map_structure(self._scale, result)
            if self._mode == "again":
                return self._count_again(tf.nest.flatten((args, kwargs)), result)
            if self._mode in ("kept", "given"):
                return tf.nest.map_structure(self._pass, result)
            return result

        hide_from_autograph(collective)
        return collective

    def _count_again(self, taken: list[Any], result: Any) -> Any:
        # On one device a collective may give the very tensors that it takes.
        result = tf.nest.map_structure(tf.identity, result, expand_composites=True)
        if is_made_of(_list_tensors(taken), self._reduced):
            result = tf.nest.map_structure(self._scale, result, expand_composites=True)
        self._reduced += _list_tensors(result)
        return result

    def _scale(self, value: Any) -> Any:
        """Counts may be whole numbers, which have no N-th part."""
        if not (tf.is_tensor(value) and value.dtype.is_floating):
            return value
        self._scaled.append(tf.cast(self._factor, value.dtype) * value)
        return self._scaled[-1]

    def _has_scaled(self, value: Any) -> bool:
        return any(value is other for other in self._scaled)

    def _pass(self, value: Any) -> Any:
        """Keep what a collective gives, or give what was kept; leave slices alone."""
        if not tf.is_tensor(value) or isinstance(value, tf.IndexedSlices):
            return value
        place = self._called
        self._called += 1
        if self._mode == "kept":
            sink = create_sink(value.dtype, "/device:CPU:0")
            with keep_from_xla():
                sink.assign(value, read_value=False)
            self._kept.append((sink, value.shape))
            return value
        if place >= len(self._kept):
            return value
        sink, shape = self._kept[place]
        return tf.ensure_shape(sink.read_value(), shape)


def _list_tensors(structure: Any) -> list[Any]:
    flat = tf.nest.flatten(structure, expand_composites=True)
    return [value for value in flat if tf.is_tensor(value)]


def _find_owner(name: str) -> type:
    """The class that defines a method of a replica's context."""
    bases = tf.distribute.ReplicaContext.__mro__
    return next(base for base in bases if name in vars(base))
