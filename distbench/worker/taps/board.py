"""Taps: where what flows past a point of the step is kept, or replaced.

A tap keeps it in a sink, which changes nothing of what is computed. A tap may also
feed: replace the value at its point by one from outside.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import distribute_lib

from distbench.trace import Phase, SparseRows, Value
from distbench.worker.taps.feeds import Fed, Feeds, Place
from distbench.worker.taps.own_gradients import OwnGradients
from distbench.worker.taps.sinks import (
    create_sink,
    empty_sink,
    keep_from_xla,
    take_out,
)


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


class TapBoard:
    """All taps of one task.

    Args:
        first_replica: Global number of this task's first replica.
        device: Where the taps live, such as `/job:chief/cpu:0`.

    Attributes:
        given: The tensors that each replica's step was traced with, by replica.
        trained_by: What tapes differentiated by variables of the subject, by replica.
        reduced: What each replica's optimizers were given as sums, by replica.
        returned: The losses that replicas returned, by replica.
        failed_replica: The first replica for which the subject's code raised.
        failed_phase: The last phase that it had reached; `loss` if it had none.
        failed_by: The exception that left its code. Where replicas meet in a thread of
            none of them, as a reduction does, TensorFlow raises there and stops the
            replicas by an exception of its own: this one knows where they were.
        find_shape: Gives the shape of the variable with a path.
        feeding: The phase at which `fed` replaces what flows past, if any.
        fed: What to feed, by call, phase and variable.
        watch: Told of each value as it comes by.
        corruption: What changes gradients as tapes give them, if anything does.
        term: The number of the term of a loss that tapes differentiate in its place.
    """

    def __init__(
        self, *, first_replica: int = 0, device: str = "/device:CPU:0"
    ) -> None:
        self._first_replica = first_replica
        self._device = device
        self._sinks: dict[TapPoint, tuple[Any, ...]] = {}
        self._shapes: dict[TapPoint, tuple[int, ...]] = {}
        self._feeds = Feeds(device)
        self._calls: dict[int, int] = {}
        self._depth: dict[int, int] = {}
        self._own = OwnGradients()
        self._targets: dict[int, list[Any]] = {}
        self._results: dict[int, list[Any]] = {}
        self.given: dict[int, list[Any]] = {}
        self.trained_by: dict[int, list[Any]] = {}
        self.reduced: dict[int, list[Any]] = {}
        self.returned: dict[int, list[Any]] = {}
        self._is_between = False
        self._local = threading.local()
        self._reached: dict[int, Phase] = {}
        self.failed_replica: int | None = None
        self.failed_phase: Phase | None = None
        self.failed_by: Exception | None = None
        self.find_shape: Callable[[str], tuple[int, ...]] = lambda _: ()
        self.feeding: Phase | None = None
        self.fed: Fed = {}
        self.watch: Callable[[TapPoint, Any], None] = _look_away
        self.corruption: Corruption | None = None
        self.term: int | None = None

    # --- where we are -----------------------------------------------------------

    def find_replica(self) -> int:
        """Global number of the replica that the calling code runs for."""
        context = tf.distribute.get_replica_context()
        if context is not None:
            # The public property makes an op, in the user's graph, whenever it is
            # asked; what it makes it of is a number, but for what TPUs run.
            known = context._replica_id_in_sync_group
            known = tf.get_static_value(known) if tf.is_tensor(known) else known
            return int(known or 0)
        # In an update: the number within this task under the mirrored strategies; a
        # device's name under CentralStorage and parameter servers, which update one
        # copy.
        number = distribute_lib.get_update_replica_id()
        return (number if isinstance(number, int) else 0) + self._first_replica

    @contextmanager
    def leave_step(self) -> Iterator[None]:
        """Around what happens between two steps: none of it is the step's own."""
        self._is_between = True
        try:
            yield
        finally:
            self._is_between = False

    @contextmanager
    def enter_replica(self, batch: Any) -> Iterator[None]:
        """Around one replica's step: a new trace counts its calls from 0.

        Args:
            batch: What the step is given.
        """
        replica = self.find_replica()
        self._reached.pop(replica, None)
        self._forget_trace(replica)
        self.given[replica] = [t for t in tf.nest.flatten(batch) if tf.is_tensor(t)]
        yield

    def _forget_trace(self, replica: int) -> None:
        """Drop what was seen while another graph was traced."""
        self._calls[replica] = self._depth[replica] = 0
        self._targets.pop(replica, None)
        self._results.pop(replica, None)
        self.trained_by.pop(replica, None)
        self.reduced.pop(replica, None)
        self.returned.pop(replica, None)
        self._own.forget(replica)

    @contextmanager
    def enter_call(self) -> Iterator[bool]:
        """Around `apply_gradients`: yields whether this is the outermost one.

        An optimizer that wraps another calls it from inside its own; what the user
        handed over is the argument of the outer one.
        """
        if self._is_between:
            yield False
            return
        replica = self.find_replica()
        depth = self._depth.get(replica, 0)
        self._depth[replica] = depth + 1
        try:
            yield depth == 0
        finally:
            self._depth[replica] = depth
            if depth == 0:
                self._calls[replica] = self._calls.get(replica, 0) + 1

    @property
    def is_in_call(self) -> bool:
        """Whether an optimizer of this replica is at its update."""
        return self._depth.get(self.find_replica(), 0) > 0

    @contextmanager
    def enter_once(self, phase: Phase) -> Iterator[bool]:
        """Yields False inside another call for the same phase in this thread."""
        name = f"in_{phase}"
        outermost = not getattr(self._local, name, False)
        setattr(self._local, name, True)
        try:
            yield outermost
        except Exception as error:
            self.note_failure(error)
            raise
        finally:
            if outermost:
                setattr(self._local, name, False)

    def note_failure(self, error: Exception) -> None:
        """Remember for which replica code raised first: its peers raise after it."""
        replica = self.find_replica()
        if self.failed_replica is None:
            self.failed_replica = replica
            self.failed_phase = self._reached.get(replica, "loss")
        if replica == self.failed_replica:
            # Further out AutoGraph has another one, which lists the user's own lines.
            self.failed_by = error

    def forget_failure(self) -> None:
        """Look for the next one."""
        self.failed_replica = self.failed_phase = self.failed_by = None

    # --- gradients from the tape --------------------------------------------------

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
        begun = self._calls.get(self.find_replica(), 0)
        calls = [
            call
            for call, phase, path in self.fed
            if (phase, path) == ("local_gradient", variable) and call >= begun
        ]
        call = min(calls, default=begun)
        return self._feed((call, "local_gradient", variable), gradient)

    def remember_gradient(self, variable: str, gradient: Any) -> None:
        """Keep a gradient that a tape gave, until its optimizer is called."""
        if gradient is not None and not self._is_between:
            replica = self.find_replica()
            call = self._calls.get(replica, 0)
            self._own.remember(replica, variable, gradient, call)

    def recall_gradient(self, variable: str) -> Any:
        """The gradient that a tape of this replica gave; see `OwnGradients.recall`."""
        return self._own.recall(self.find_replica(), variable)

    def remember_target(self, target: Any, *, trains: bool) -> None:
        """Keep what a tape of this replica differentiated.

        Args:
            target: What it was.
            trains: Whether by a variable of the subject.
        """
        if self._is_between:
            return
        replica = self.find_replica()
        kept = self._targets.setdefault(replica, [])
        if not any(target is other for other in kept):
            kept.append(target)
        if trains:
            found = filter(tf.is_tensor, tf.nest.flatten(target))
            self.trained_by.setdefault(replica, []).extend(found)

    def remember_result(self, result: Any) -> None:
        """Keep what a tape of this replica gave, by whatever it differentiated."""
        if not self._is_between:
            flat = tf.nest.flatten(result, expand_composites=True)
            found = self._results.setdefault(self.find_replica(), [])
            found.extend(filter(tf.is_tensor, flat))

    def list_results(self) -> list[Any]:
        """The tensors that the tapes of all replicas gave."""
        return list(chain(*self._results.values()))

    def list_differentiated(self) -> dict[int, list[Any]]:
        """By replica, what its tapes differentiated for its training.

        Whoever differentiates by no variable does so by values that are made of them,
        as by weights that are moved up the slope first.
        """
        found = dict(self.trained_by)
        for replica, targets in self._targets.items():
            if replica not in found:
                found[replica] = list(filter(tf.is_tensor, tf.nest.flatten(targets)))
        return found

    def list_targets(self) -> list[Any]:
        """What the tapes of this replica's step differentiated."""
        return self._targets.get(self.find_replica(), [])

    def list_gradients(self) -> list[Any]:
        """The tensors that the tapes of a step gave for the subject's variables."""
        found = tf.nest.flatten(list(self._own.list_all()), expand_composites=True)
        return list(filter(tf.is_tensor, found))

    def count_gradients(self) -> int:
        """How many gradients of one variable the tapes of a step gave, at most."""
        return self._own.count()

    def tap_unclaimed(self) -> None:
        """Record what the tapes gave for variables that no optimizer was given."""
        replica = self.find_replica()
        for variable, call in list(self._own.list_unclaimed(replica)):
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
            call = self._calls.get(replica, 0)
        self._reached[replica] = phase
        if self.feeding == phase:
            value = self._feed((call, phase, variable), value)
        point = TapPoint(call, phase, variable, replica)
        tensors: tuple[Any, ...]
        if isinstance(value, tf.IndexedSlices):
            # The slices alone do not tell how many rows there are.
            self._shapes[point] = self.find_shape(variable)
            tensors = value.indices, value.values
        else:
            tensors = (tf.convert_to_tensor(value),)
        if phase == "reduced_gradient":
            self.reduced.setdefault(replica, []).extend(tensors)
        elif phase == "loss":
            self.returned.setdefault(replica, []).extend(tensors)
        self._write(point, tensors)
        self.watch(point, value)
        return value

    def clear_loss(self) -> None:
        """Leave no loss of the replica, whatever was recorded in this step."""
        point = TapPoint(0, "loss", "", self.find_replica())
        for sink in self._sinks.get(point, ()):
            empty_sink(sink)

    def _write(self, point: TapPoint, tensors: tuple[Any, ...]) -> None:
        with keep_from_xla():
            sinks = self._sinks.get(point)
            if sinks is None or len(sinks) != len(tensors):
                sinks = tuple(create_sink(t.dtype, self._device) for t in tensors)
                self._sinks[point] = sinks
            for sink, tensor in zip(sinks, tensors, strict=True):
                # Op by op, rows may be numbered in another integer dtype.
                sink.assign(tf.cast(tensor, sink.dtype), read_value=False)

    def _feed(self, place: Place, value: Any) -> Any:
        given = self.fed.get(place)
        if given is None:
            return value
        return self._feeds.read(place, given, value.dtype)

    @contextmanager
    def feed_at(self, phase: Phase) -> Iterator[None]:
        """Inside, what is `fed` replaces what flows past at a phase."""
        self.feeding = phase
        try:
            yield
        finally:
            self.feeding, self.fed = None, {}

    def set_feeds(self) -> None:
        """Have the next step take what is `fed`."""
        self._feeds.write(self.fed)

    def forget(self) -> None:
        """Drop all taps: what was traced with them is not used any more."""
        self._sinks.clear()
        self._feeds.forget()

    def read(self) -> Mapping[TapPoint, Value]:
        """What the last step left in every tap; leaves them empty for the next.

        A step that skips its update, as a loss scale makes it, writes none of the taps
        in it: what an earlier step left there would pass for its own.
        """
        values: dict[TapPoint, Value] = {}
        for point, sinks in self._sinks.items():
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

    @property
    def variables(self) -> set[int]:
        """Identities of the taps' own variables, which are no state of the subject."""
        sinks = {id(sink) for sinks in self._sinks.values() for sink in sinks}
        return sinks | self._feeds.variables
