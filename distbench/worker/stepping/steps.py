"""How a step is run: by the replicas together, or scheduled on a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import tensorflow as tf
from tensorflow.python.distribute.coordinator.coordinator_context import (
    get_current_dispatch_context,
)
from tensorflow.python.distribute.values import PerReplicaSpec

from distbench.worker.process.intercept import hide_from_autograph
from distbench.worker.stepping.at_once import trace_at_once
from distbench.worker.stepping.held_open import hold_open
from distbench.worker.stepping.turns import Turns

if TYPE_CHECKING:
    from distbench.worker.stepping.session import Session


class Step(Protocol):
    """A step with a trace of its own, run on one global batch after the other.

    Attributes:
        any_size: Whether it is traced once for batches of all sizes.
    """

    any_size: bool

    def trace(self, shards: Sequence[Any]) -> tf.Graph:
        """Trace without running, so that all variables exist; returns the graph."""

    def run(self, shards: Sequence[Any]) -> None:
        """Run it once, on a shard for each replica, and wait for its end."""


class ReplicaStep:
    """All replicas of the strategy run a function together, each on its shard.

    Args:
        session: Whose strategy, and whose taps.
        function: Takes a shard and returns a replica's loss.
        any_size: See `Step`.
    """

    def __init__(
        self, session: Session, function: Callable[[Any], Any], *, any_size: bool
    ) -> None:
        self.any_size = any_size
        watched = session.watch(function)

        def replica_step(batch: Any) -> Any:
            return session.tap_loss(watched(batch))

        def step(batch: Any) -> Any:
            return session.strategy.run(replica_step, args=(batch,))

        # Converting the bench's own code would cost more than tracing the user's.
        hide_from_autograph(replica_step)
        hide_from_autograph(step)
        self._session = session
        self._function = tf.function(step)
        trace_at_once(self._function)

    def trace(self, shards: Sequence[Any]) -> tf.Graph:
        """See `Step`."""
        return self._trace(self._session.distribute(shards)).graph

    def run(self, shards: Sequence[Any]) -> None:
        """See `Step`."""
        self._session.draws.tell_examples(shards)
        batch = self._session.distribute(shards)
        self._choose(batch)(batch)

    def _trace(self, batch: Any) -> Any:
        """What a batch runs: a concrete function."""
        if self.any_size:
            batch = tf.nest.map_structure(_describe_any_size, batch)
        return self._function.get_concrete_function(batch)

    def _choose(self, batch: Any) -> Any:
        """What to call with a batch."""
        # Op by op there is no trace.
        is_fixed = not self.any_size or tf.config.functions_run_eagerly()
        return self._function if is_fixed else self._trace(batch)


class ScheduledStep(ReplicaStep):
    """A coordinator schedules a step at a time, on the worker whose turn it is."""

    def __init__(
        self, session: Session, function: Callable[[Any], Any], *, any_size: bool
    ) -> None:
        super().__init__(session, function, any_size=any_size)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(
            session.strategy
        )
        self._turns = Turns.find(self._coordinator)

    def run(self, shards: Sequence[Any]) -> None:
        """See `Step`."""
        session = self._session
        session.draws.tell_examples(shards)
        batch = session.distribute(shards)
        self._turns.schedule(
            session.step, self._coordinator.schedule, self._choose(batch), (batch,)
        )
        self._coordinator.join()
        session.taken_by[session.step] = self._turns.taken_by

    def _trace(self, batch: Any) -> Any:
        with trace_scheduled(self._session.strategy):
            return super()._trace(batch)


def _describe_any_size(value: Any) -> Any:
    """The type of a tensor, or of one for each replica, whatever its first axis."""
    return _leave_size_open(tf.type_spec_from_value(value))


def _leave_size_open(spec: Any) -> Any:
    if isinstance(spec, PerReplicaSpec):
        return PerReplicaSpec(*map(_leave_size_open, spec._value_specs))
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)


@dataclass(slots=True)
class Timed:
    """A step in flight, as the coordinator saw it.

    Attributes:
        tries: How often it was handed to a worker.
        begun: How many steps had ended when it was handed to the first one.
        ended: Its number among those that ended; -1 while it has not.
    """

    tries: int = 0
    begun: int = 0
    ended: int = -1


class StepsInFlight:
    """A coordinator schedules many steps before it waits for them.

    Each tells how many had ended when it began, and how many when it ended itself. What
    lies between is how old at most its view of the variables was. The clock is read by
    the coordinator's own threads, around the call that runs a step on a worker: what
    had answered before the call was written before the step could read, and a call
    answers when all is written. A clock inside of the step would say the same, and cost
    a way from the worker to the chief and back for each reading.

    Args:
        session: Whose strategy; its steps have no taps, which hold a step at a time.
        function: Takes a batch and returns a replica's loss.
        report: Told, by one of several threads, of each step that a worker is handed,
            and of the number of the worker.
    """

    def __init__(
        self,
        session: Session,
        function: Callable[[Any], Any],
        report: Callable[[int, int], None] = lambda _step, _worker: None,
    ) -> None:
        self._session = session
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(
            session.strategy
        )
        self._report = report
        self._lock = threading.Lock()
        self._first = 0
        self._ended = 0

        def step(batch: Any) -> Any:
            with nullcontext() if session.alone else hold_open(session.table):
                return session.strategy.run(function, args=(batch,))

        hide_from_autograph(step)
        self._function = tf.function(step)

    def run(self, batches: Sequence[Any]) -> list[Timed]:
        """Run a step on each batch and wait for all."""
        handed = [self._session.distribute([batch]) for batch in batches]
        like = handed[0]
        if self._session.varies:
            like = tf.nest.map_structure(_describe_any_size, like)
        with trace_scheduled(self._session.strategy):
            take_step = self._function.get_concrete_function(like)
        times = [Timed() for _ in batches]
        # `ClusterCoordinator.schedule` only adds that it takes no Python function, and
        # the scope of the strategy, which matters to tracing alone.
        schedule = self._coordinator._cluster.schedule
        # As long as a result is held the coordinator fetches the loss, as for a user.
        results = [
            schedule(
                partial(self._take, take_step, self._first + place, times[place]),
                args=(batch,),
                kwargs={},
            )
            for place, batch in enumerate(handed)
        ]
        self._coordinator.join()
        del results
        self._first += len(batches)
        return times

    def _take(
        self, take_step: Callable[[Any], Any], step: int, timed: Timed, batch: Any
    ) -> Any:
        self._report(step, get_current_dispatch_context().worker_index)
        with self._lock:
            if not timed.tries:
                timed.begun = self._ended
            timed.tries += 1
        loss = take_step(batch)
        with self._lock:
            # A step that comes again has ended once more, and counts once.
            if timed.ended < 0:
                timed.ended = self._ended
                self._ended += 1
        return loss


@contextmanager
def trace_scheduled(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Inside, a step of a coordinator may be traced without being scheduled.

    `strategy.run` asks for a mark, which `ClusterCoordinator.schedule` sets around its
    own tracing.
    """
    extended = strategy.extended
    extended._being_scheduled = True
    try:
        with strategy.scope():
            yield
    finally:
        extended._being_scheduled = False
