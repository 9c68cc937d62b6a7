"""Taps: where what flows past a point of the step is kept, or replaced.

A tap keeps it in a sink, which changes nothing of what is computed. A tap may also
feed: replace the value at its point by one from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from distbench.trace import Phase, SparseRows, Value
from distbench.trace.intermediates import (
    INTERMEDIATES,
    made_to_json,
    name_given,
    rename_given,
)
from distbench.worker.state.variables import VariableTable
from distbench.worker.taps.backwards import Writes
from distbench.worker.taps.feeds import ByPlace, Dtypes, Feeds, Place
from distbench.worker.taps.gradients import map_numbers, multiply
from distbench.worker.taps.intermediates import Intermediates
from distbench.worker.taps.reach import is_in_reach
from distbench.worker.taps.sinks import (
    create_sink,
    empty_sink,
    keep_from_xla,
    take_out,
)
from distbench.worker.taps.terms import pick_term
from distbench.worker.taps.traced_step import TracedStep


class Corruption(Protocol):
    """What changes gradients on purpose."""

    def change(self, replica: int, gradient: Any) -> Any:
        """What a tape of a replica gives in the place of a gradient."""
        ...


@dataclass(frozen=True, slots=True)
class TapPoint:
    """Where a value is observed: a trace key without its step."""

    call: int
    phase: Phase
    variable: str
    replica: int


def _look_away(point: TapPoint, value: Any) -> None:
    """Nobody waits for a value."""


class TapBoard(TracedStep):
    """All taps of one task, in the steps that it traces.

    Args:
        first_replica: Global number of this task's first replica.
        device: Where the taps live, such as `/job:chief/cpu:0`.

    Attributes:
        find_shape: Gives the shape of the variable with a path.
        fed: What replaces what flows past, by call, phase and variable.
        watch: Told of each value as it comes by.
        corruption: What changes gradients as tapes give them, if anything does.
        weight: What all gradients are multiplied by as tapes give them.
        term: The number of the term of a loss that tapes differentiate in its place.
        intermediates: What is looked at of what losses are computed of, if anything.
    """

    def __init__(
        self, *, first_replica: int = 0, device: str = "/device:CPU:0"
    ) -> None:
        super().__init__(first_replica)
        self._device = device
        self._sinks: dict[tuple[TapPoint, Dtypes], tuple[Any, ...]] = {}
        self._shapes: dict[TapPoint, tuple[int, ...]] = {}
        self._feeds = Feeds(device)
        self.find_shape: Callable[[str], tuple[int, ...]] = lambda _: ()
        self.fed: ByPlace = {}
        self.watch: Callable[[TapPoint, Any], None] = _look_away
        self.corruption: Corruption | None = None
        self.weight = 1.0
        self.term: int | None = None
        self._terms: dict[int, Any] = {}
        self._summed: dict[int, dict[str, list[Any]]] = {}
        self._given: dict[int, dict[str, int]] = {}
        self.intermediates: Intermediates | None = None

    # --- gradients from the tape --------------------------------------------------

    def weigh_gradient(self, gradient: Any) -> Any:
        """What a tape gives, as if the loss were `weight` times as large."""
        if self.weight == 1 or gradient is None or self._is_between:
            return gradient
        return map_numbers(gradient, partial(multiply, factor=self.weight))

    def corrupt_gradient(self, gradient: Any) -> Any:
        """What a tape of this replica gives in the place of a gradient."""
        if self.corruption is None or gradient is None or self._is_between:
            return gradient
        return self.corruption.change(self.find_replica(), gradient)

    def feed_gradient(self, variable: str, gradient: Any) -> Any:
        """What a tape gives where local gradients are fed: that of the next call.

        A step may update a variable first, or again, in a later call than the first.
        """
        if gradient is None or self._is_between:
            return gradient
        begun = self.count_calls(self.find_replica())
        calls = [
            call
            for call, phase, path in self.fed
            if (phase, path) == ("local_gradient", variable) and call >= begun
        ]
        call = min(calls, default=begun)
        return self._feed((call, "local_gradient", variable), gradient)

    def tap_unclaimed(self) -> None:
        """Record what the tapes gave for variables that no optimizer was given."""
        replica = self.find_replica()
        for variable, call in list(self.seen.gradients.list_unclaimed(replica)):
            gradient = self.recall_gradient(variable)
            if gradient is not None:
                self.tap("local_gradient", variable, gradient, call)

    # --- recording and feeding ------------------------------------------------------

    def tap(
        self, phase: Phase, variable: str, value: Any, call: int | None = None
    ) -> Any:
        """Record a value in the graph; returns it, or what is fed in its place.

        Args:
            phase: Of which it is a value.
            variable: Whose it is.
            value: It.
            call: The update of the step that it belongs to; None is that which is made.
        """
        if self._is_between:
            return value
        replica = self.find_replica()
        if phase == "loss":
            call = 0  # It belongs to the step, however many calls that made.
        elif call is None:
            call = self.count_calls(replica)
        self._reached.pass_by(replica, phase)
        value = self._feed((call, phase, variable), value)
        point = TapPoint(call, phase, variable, replica)
        tensors: tuple[Any, ...]
        if isinstance(value, tf.IndexedSlices):
            # The slices alone do not tell how many rows there are.
            self._shapes[point] = self.find_shape(variable)
            tensors = value.indices, value.values
        else:
            tensors = (tf.convert_to_tensor(value),)
        self.seen.add_tapped(replica, phase, tensors)
        if phase == "reduced_gradient":
            moving = self._summed.setdefault(replica, {})
            moving.setdefault(variable, []).append(tensors[-1])
        self._write(point, tensors)
        self.watch(point, value)
        return value

    def list_summed(self) -> Mapping[str, Sequence[Any]]:
        """By variable, what one replica was given as sums in the trace of a step."""
        return next(iter(self._summed.values()), {})

    def note_intermediates(self) -> dict[str, object]:
        """A note for a trace of where these are made, if they were looked at."""
        made = {} if self.intermediates is None else self.intermediates.made
        return {INTERMEDIATES: made_to_json(made.values())} if made else {}

    def remember_term(self, value: Any) -> None:
        """Keep what the term comes to that a tape of this replica differentiated."""
        self._terms[self.find_replica()] = value

    def take_loss(self, loss: Any) -> Any:
        """The loss of this replica, or the term in its place that is differentiated.

        Keras tells its loss before a tape differentiates it, by terms of its own.
        """
        if self.term is None:
            return loss
        known = self._terms.get(self.find_replica())
        if known is not None:
            return known
        term, factor = pick_term(loss, self.term)
        return tf.reduce_sum(term * tf.cast(factor, term.dtype))

    def _forget_trace(self, replica: int) -> None:
        super()._forget_trace(replica)
        self._terms.pop(replica, None)
        self._summed.pop(replica, None)
        self._given.pop(replica, None)

    def remember_target(self, target: Any, *, trains: bool) -> None:
        """Keep what a tape differentiated, and record what it is made of, if wanted."""
        super().remember_target(target, trains=trains)
        if self.intermediates is None or self._is_between:
            return
        targets = self.list_targets()
        number = next(n for n, known in enumerate(targets) if known is target)
        local = self.find_replica() - self._first_replica
        self.intermediates.look_at(
            target, number, local, self._make_keep(), trains=trains
        )

    def remember_gradient(self, variable: str, gradient: Any) -> None:
        """Keep a gradient that a tape gave, and record it, if that is wanted."""
        super().remember_gradient(variable, gradient)
        if gradient is None or self.intermediates is None or self._is_between:
            return
        times = self._given.setdefault(self.find_replica(), {})
        number = times[variable] = times.get(variable, -1) + 1
        if is_in_reach(gradient):
            dense = tf.convert_to_tensor(gradient)
            self._make_keep()(name_given(number, variable), dense)

    def look_at_step(self, table: VariableTable) -> None:
        """Record what this replica's step has moved variables by, if that is wanted."""
        looking = self.intermediates
        if looking is None or not looking.of_steps or tf.executing_eagerly():
            return
        graph, replica = tf.compat.v1.get_default_graph(), self.find_replica()
        writes = Writes(graph)
        moving = {
            variable.info.path: writes.list_written(variable.components)
            for variable in table.state
        }
        for path, tensors in self._summed.get(replica, {}).items():
            moving[path] = [t for t in tensors if t.graph is graph] + moving.get(
                path, []
            )
        local = replica - self._first_replica
        looking.look_at_step(moving, local, self._make_keep())

    def _make_keep(self) -> Callable[[str, Any], None]:
        """Writes an intermediate value of this replica down, under its name."""
        replica = self.find_replica()

        def keep(name: str, tensor: Any) -> None:
            self._write(TapPoint(0, "loss", name, replica), (tensor,))

        return keep

    def clear_loss(self) -> None:
        """Leave no loss of the replica, whatever was recorded in this step."""
        own = TapPoint(0, "loss", "", self.find_replica())
        for (point, _), sinks in self._sinks.items():
            if point == own:
                for sink in sinks:
                    empty_sink(sink)

    def _write(self, point: TapPoint, tensors: tuple[Any, ...]) -> None:
        kind = tuple(tensor.dtype for tensor in tensors)
        with keep_from_xla():
            sinks = self._sinks.get((point, kind))
            if sinks is None:
                sinks = tuple(create_sink(dtype, self._device) for dtype in kind)
                self._sinks[point, kind] = sinks
            for sink, tensor in zip(sinks, tensors, strict=True):
                sink.assign(tensor, read_value=False)

    def _feed(self, place: Place, value: Any) -> Any:
        given = self.fed.get(place)
        # A sum may come by as it was made, and again as what the rule is handed of it:
        # the last one is recorded, and fed.
        if given is None or not value.shape.is_compatible_with(given.shape):
            return value
        return self._feeds.read(place, given, value.dtype)

    @contextmanager
    def feed(self, fed: ByPlace) -> Iterator[None]:
        """Inside, this replaces what flows past in steps that are traced."""
        self.fed = fed
        try:
            yield
        finally:
            self.fed = {}

    def set_feeds(self) -> None:
        """Have the next step take what is `fed`."""
        self._feeds.write(self.fed)

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """Inside, what is traced has taps of its own; others come back, and empty."""
        self.read()
        kept = self._sinks, self._shapes
        self._sinks, self._shapes = {}, {}
        try:
            yield
        finally:
            self._sinks, self._shapes = kept

    def read(self) -> Mapping[TapPoint, Value]:
        """What the last step left in every tap; leaves them empty for the next.

        A step that skips its update, as a loss scale makes it, writes none of the taps
        in it: what an earlier step left there would pass for its own.
        """
        values: dict[TapPoint, Value] = {}
        for (point, _), sinks in self._sinks.items():
            arrays = take_out(sinks)
            if not arrays:
                continue
            if len(arrays) == 1:
                values[point] = arrays[0]
            else:
                values[point] = SparseRows(
                    indices=arrays[0].astype(np.int64, copy=False),
                    values=arrays[1],
                    shape=self._shapes[point],
                )
        return values

    def rename(self, paths: Mapping[str, str]) -> None:
        """Call variables by other paths, in what was traced already too."""

        def change(point: TapPoint) -> TapPoint:
            name = rename_given(point.variable, paths)
            return replace(point, variable=paths.get(name, name))

        self._sinks = {(change(p), k): sinks for (p, k), sinks in self._sinks.items()}
        self._shapes = {change(p): shape for p, shape in self._shapes.items()}
        self._feeds.rename(paths)
        if self.intermediates is not None:
            self.intermediates.rename(paths)

    @property
    def variables(self) -> set[int]:
        """Identities of the taps' own variables, which are no state of the subject."""
        sinks = {id(sink) for sinks in self._sinks.values() for sink in sinks}
        return sinks | self._feeds.variables
