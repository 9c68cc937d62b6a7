"""What collectives give on one device: kept in one run of a step, and given in others.

A replica takes counts, frequencies or limits of all examples from a collective. On one
device the global batch alone has these; a shard that is given them computes what its
replica should.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from distbench.worker.process.intercept import hide_from_autograph
from distbench.worker.state.components import write_component
from distbench.worker.taps.backwards import is_eager
from distbench.worker.taps.board import TapBoard
from distbench.worker.taps.callers import name_own_line
from distbench.worker.taps.exchange import is_made_of
from distbench.worker.taps.sinks import create_sink, keep_from_xla

_DEVICE = "/device:CPU:0"
_Mode = Literal["noticed", "kept", "given", "scaled", "again"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Collective:
    """One tensor that a collective gives on one device.

    Attributes:
        given: A sink with what it gives in the steps that are given it.
        taken: A sink with what such a step handed to the collective.
        shape: What is known of its shape.
        operation: `SUM` or `MEAN`; "" where it gathers.
        axis: Along which the parts of replicas are joined: what is gathered, or rows of
            slices. None where they are added up.
        of_gradient: Whether it is made of what a tape gave.
    """

    given: Any
    taken: Any
    shape: tf.TensorShape
    operation: str
    axis: int | None
    of_gradient: bool


class Exchanged:
    """Stands before the collectives of a replica while steps are traced.

    Calls are known by their order, which is that of the program: a step that comes to
    another number of them is not the one that was kept.

    Args:
        board: Knows whether a tape has given a gradient yet.

    Attributes:
        is_early: Whether a collective was called before the first gradient, so that
            losses may be made of what it gives.
        is_between: Whether one was called between the gradients of two losses, and not
            by an optimizer: shards that go on from its updates are known otherwise.
        may_reduce_again: Whether one may have been given what another one gave, in the
            step itself.
        reduces_at: The line of the subject's own code that first called one with more
            than a number after a gradient; empty where an optimizer of Keras, or the
            bench, did alone.
    """

    def __init__(self, board: TapBoard) -> None:
        self._board = board
        self._mode: _Mode = "noticed"
        self._kept: list[Collective] = []
        self._asked: list[int] = []
        self._last = 0
        self._called = 0
        self._is_inside = False
        self._factor = create_sink(tf.float64, _DEVICE)
        self._scaled: list[Any] = []
        self._reduced: list[Any] = []
        self._of_before: tuple[tf.Graph, set[str]] | None = None
        self.is_early = self.is_between = self.may_reduce_again = False
        self.reduces_at = ""

    @contextmanager
    def notice(self) -> Iterator[None]:
        """Inside, it is looked when the traced step calls collectives."""
        with self._intercept("noticed"):
            yield
        self._last = len(self._board.list_targets())
        self.is_between = any(0 < asked < self._last for asked in self._asked)

    @contextmanager
    def keep(self) -> Iterator[None]:
        """Inside, a step is traced that keeps what its collectives give."""
        self._kept.clear()
        with self._intercept("kept"):
            yield

    def list_kept(self) -> list[Collective]:
        """All that was kept last."""
        return list(self._kept)

    @contextmanager
    def give(self) -> Iterator[None]:
        """Inside, a step is traced whose collectives give what was kept last."""
        with self._intercept("given"):
            yield

    @contextmanager
    def scale(self) -> Iterator[None]:
        """Inside, a step is traced whose losses take a multiple; see `set_factor`."""
        self._scaled.clear()
        with self._intercept("scaled"):
            yield

    @contextmanager
    def scale_again(self, factor: float) -> Iterator[None]:
        """Inside, a step is traced that counts so often what it reduces once more.

        That is what a collective gives of what another one gave before: every replica
        has the whole of it already.
        """
        self.set_factor(factor)
        self._scaled.clear()
        self._reduced.clear()
        with self._intercept("again"):
            yield

    def set_factor(self, factor: float) -> None:
        """Have steps that scale what collectives give take so many times that."""
        write_component(self._factor, np.asarray(factor))

    @property
    def fits_any_size(self) -> bool:
        """Whether no number of examples is in the shape of what was kept last."""
        return all(
            one.axis is None or one.shape.rank is None or one.shape[one.axis] is None
            for one in self._kept
        )

    @property
    def leads_losses(self) -> bool:
        """Whether losses may be made of what a collective gives."""
        return self.is_early or self.is_between

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
        found = [(owner, name, vars(owner)[name]) for owner, name in _list_methods()]
        for owner, name, original in found:
            setattr(owner, name, self._make_method(original))
        try:
            yield
        finally:
            for owner, name, original in found:
                setattr(owner, name, original)

    def _make_method(self, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def collective(context: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_inside:
                return original(context, *args, **kwargs)
            is_early = not self._board.seen.trained_by.get(self._board.find_replica())
            self.is_early |= is_early
            asked = len(self._board.list_targets())
            if not self._board.is_in_call:
                self._asked.append(asked)
            call = signature.bind(context, *args, **kwargs)
            taken = tf.nest.flatten(call.arguments["value"])
            if self._mode == "noticed":
                self._notice_again(taken)
                # A lone number is a norm or a count, and no gradient.
                are_many = any(t.shape.rank != 0 for t in _list_tensors(taken))
                if asked and are_many and not self.reduces_at:
                    self.reduces_at = name_own_line()
            self._is_inside = True
            try:
                result = original(context, *args, **kwargs)
            finally:
                self._is_inside = False
            if self._mode == "again":
                return self._count_again(taken, result)
            if self._mode in ("kept", "given"):
                return tf.nest.map_structure(partial(self._pass, call), result)
            # What is reduced again, as it is, has its factor already.
            is_new = not any(map(self._has_scaled, _list_tensors(taken)))
            if self._mode == "scaled" and is_new and (is_early or asked < self._last):
                return self._scale_all(result)
            return result

        hide_from_autograph(collective)
        return collective

    def _notice_again(self, taken: list[Any]) -> None:
        """Of what was there before the first call none is made of what one gave."""
        if self._of_before is None:
            graph = tf.compat.v1.get_default_graph()
            self._of_before = graph, {op.name for op in graph.get_operations()}
            return
        graph, names = self._of_before
        self.may_reduce_again |= any(
            is_eager(tensor) or tensor.graph is not graph or tensor.op.name not in names
            for tensor in _list_tensors(taken)
        )

    def _count_again(self, taken: list[Any], result: Any) -> Any:
        # On one device a collective may give the very tensors that it takes.
        result = tf.nest.map_structure(tf.identity, result, expand_composites=True)
        if is_made_of(_list_tensors(taken), self._reduced):
            result = self._scale_all(result)
        self._reduced += _list_tensors(result)
        return result

    def _scale_all(self, result: Any) -> Any:
        # Of slices the numbers are scaled, and their rows stay.
        return tf.nest.map_structure(self._scale, result, expand_composites=True)

    def _scale(self, value: Any) -> Any:
        """Counts may be whole numbers, which have no N-th part."""
        if not (tf.is_tensor(value) and value.dtype.is_floating):
            return value
        factor = tf.ensure_shape(self._factor.read_value(), [])
        self._scaled.append(tf.cast(factor, value.dtype) * value)
        return self._scaled[-1]

    def _has_scaled(self, value: Any) -> bool:
        return any(value is other for other in self._scaled)

    def _pass(self, call: inspect.BoundArguments, value: Any) -> Any:
        """Keep what a collective gives, or give what was kept."""
        if isinstance(value, tf.IndexedSlices):
            rows, numbers = (
                self._pass_tensor(call, part, is_rows=True)
                for part in (value.values, value.indices)
            )
            return tf.IndexedSlices(rows, numbers, value.dense_shape)
        return self._pass_tensor(call, value) if tf.is_tensor(value) else value

    def _pass_tensor(
        self, call: inspect.BoundArguments, value: Any, *, is_rows: bool = False
    ) -> Any:
        place = self._called
        self._called += 1
        if self._mode == "kept":
            self._kept.append(self._make_collective(call, value, is_rows=is_rows))
            _write(self._kept[-1].given, value)
            return value
        if place >= len(self._kept):
            return value
        one = self._kept[place]
        _write(one.taken, value)
        return _put_in(tf.ensure_shape(one.given.read_value(), one.shape), value)

    def _make_collective(
        self, call: inspect.BoundArguments, value: Any, *, is_rows: bool
    ) -> Collective:
        operation = call.arguments.get("reduce_op", "")
        return Collective(
            given=create_sink(value.dtype, _DEVICE),
            taken=create_sink(value.dtype, _DEVICE),
            # Nobody says how many rows there are.
            shape=tf.TensorShape([None, *value.shape[1:]]) if is_rows else value.shape,
            operation=str(getattr(operation, "name", operation)).upper(),
            axis=0 if is_rows else call.arguments.get("axis"),
            of_gradient=is_made_of([value], self._board.seen.list_results()),
        )


def _put_in(given: Any, value: Any) -> Any:
    """Something else in the place of a value, to which gradients flow as they did.

    The gradient of a collective is one as well, and is given what was kept of it.
    """
    if not (given.dtype.is_floating and given.shape.is_compatible_with(value.shape)):
        return given

    def pass_back(value: Any) -> tuple[Any, Any]:
        del value
        return given, lambda upstream: upstream

    return tf.custom_gradient(pass_back)(value)


def _write(sink: Any, value: Any) -> None:
    with keep_from_xla():
        sink.assign(value, read_value=False)


def _list_tensors(structure: Any) -> list[Any]:
    flat = tf.nest.flatten(structure, expand_composites=True)
    return [value for value in flat if tf.is_tensor(value)]


def _list_methods() -> list[tuple[type, str]]:
    """What sums or gathers values, in a replica's context and across them.

    Each by the class that defines it; a replica's method may call the other one.
    """
    bases = tf.distribute.ReplicaContext.__mro__
    found = [
        (next(base for base in bases if name in vars(base)), name)
        for name in ("all_reduce", "all_gather")
    ]
    return [*found, (type(_find_default().extended), "_reduce_to")]


def _find_default() -> tf.distribute.Strategy:
    """The strategy of a program that has none."""
    with tf.init_scope():
        return tf.distribute.get_strategy()
