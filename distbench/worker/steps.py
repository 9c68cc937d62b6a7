"""How a step is run: by the replicas together, or scheduled on a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from distbench.worker.intercept import hide_from_autograph

if TYPE_CHECKING:
    from distbench.worker.session import Session


class Step(Protocol):
    """A step with a trace of its own, run on one global batch after the other."""

    def trace(self, shards: Sequence[Any]) -> tf.Graph:
        """Trace without running, so that all variables exist; returns the graph."""

    def run(self, shards: Sequence[Any]) -> None:
        """Run it once, on a shard for each replica, and wait for its end."""


class ReplicaStep:
    """All replicas of the strategy run a function together, each on its shard.

    Args:
        session: Whose strategy, and whose taps.
        function: Takes a shard and returns a replica's loss.
    """

    def __init__(self, session: Session, function: Callable[[Any], Any]) -> None:
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

    def trace(self, shards: Sequence[Any]) -> tf.Graph:
        """See `Step`."""
        batch = self._session.distribute(shards)
        return self._function.get_concrete_function(batch).graph

    def run(self, shards: Sequence[Any]) -> None:
        """See `Step`."""
        self._function(self._session.distribute(shards))


class ScheduledStep(ReplicaStep):
    """A coordinator schedules the step on one of the workers: one at a time."""

    def __init__(self, session: Session, function: Callable[[Any], Any]) -> None:
        super().__init__(session, function)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(
            session.strategy
        )

    def trace(self, shards: Sequence[Any]) -> tf.Graph:
        """See `Step`."""
        with trace_scheduled(self._session.strategy):
            return super().trace(shards)

    def run(self, shards: Sequence[Any]) -> None:
        """See `Step`."""
        batch = self._session.distribute(shards)
        self._coordinator.schedule(self._function, args=(batch,))
        self._coordinator.join()


class StepsInFlight:
    """A coordinator schedules many steps before it waits for them.

    Each tells how many had ended when it began, and how many when it ended itself. What
    lies between is how old at most its view of the variables was.

    Args:
        session: Whose strategy; its steps have no taps, which hold a step at a time.
        function: Takes a batch and returns a replica's loss.
    """

    def __init__(self, session: Session, function: Callable[[Any], Any]) -> None:
        self._session = session
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(
            session.strategy
        )
        with tf.device("/job:chief/device:CPU:0"):
            self._clock = ResourceVariable(np.int64(0), trainable=False)

        def run_step(batch: Any) -> Any:
            return session.strategy.run(function, args=(batch,))

        # A call begins after what it is told to wait for, and ends when all is written.
        take_step = tf.function(run_step)

        def step(batch: Any) -> tuple[tf.Tensor, tf.Tensor]:
            begun = self._clock.read_value()
            with tf.control_dependencies([begun]):
                loss = take_step(batch)
            with tf.control_dependencies([loss]):
                # Returns the number before, and no other step the same.
                ended = tf.raw_ops.ResourceCountUpTo(
                    resource=self._clock.handle, limit=tf.int64.max, T=tf.int64
                )
            return begun, ended

        hide_from_autograph(run_step)
        hide_from_autograph(step)
        self._function = tf.function(step)

    def run(self, batches: Sequence[Any]) -> list[tuple[int, int]]:
        """Run a step on each batch and wait for all.

        Returns:
            Of each, how many steps had ended when it began and when it ended.
        """
        results = [
            self._coordinator.schedule(
                self._function, args=(self._session.distribute([batch]),)
            )
            for batch in batches
        ]
        self._coordinator.join()
        fetched = self._coordinator.fetch(results)
        return [(int(begun), int(ended)) for begun, ended in fetched]

    def count(self) -> int:
        """How many steps have ended."""
        return int(self._clock.read_value())


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
