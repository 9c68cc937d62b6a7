"""How a step is run: by the replicas together, or scheduled on a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import tensorflow as tf

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
