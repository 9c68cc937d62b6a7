"""How a traced step gets run: by the replicas together, or scheduled on a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import tensorflow as tf

from distbench.worker.session import Session


class Runner(Protocol):
    """Traces a step once and runs it on one global batch after the other."""

    def prepare(self, shards: Sequence[Any]) -> None:
        """Trace without running, so that all variables exist."""

    def run(self, shards: Sequence[Any]) -> None:
        """Run one step and wait for its end."""


class SynchronousRunner:
    """All replicas of the strategy take the step together."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._step = session.make_step()

    def prepare(self, shards: Sequence[Any]) -> None:
        """See `Runner`."""
        self._session.prepare(self._step, self._session.distribute(shards))

    def run(self, shards: Sequence[Any]) -> None:
        """See `Runner`."""
        batch = self._session.distribute(shards)
        with self._session.guard("step"):
            self._step(batch)


class ScheduledRunner:
    """A coordinator schedules the step on one of the workers: one at a time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._step = session.make_step()
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(
            session.strategy
        )

    def prepare(self, shards: Sequence[Any]) -> None:
        """See `Runner`."""
        extended = self._session.strategy.extended
        # `strategy.run` may be traced only while something is being scheduled; the
        # coordinator's own `schedule` sets the same mark around its tracing.
        extended._being_scheduled = True
        try:
            with self._session.strategy.scope():
                self._session.prepare(self._step, self._place(shards))
        finally:
            extended._being_scheduled = False

    def run(self, shards: Sequence[Any]) -> None:
        """See `Runner`."""
        with self._session.guard("step"):
            self._coordinator.schedule(self._step, args=(self._place(shards),))
            self._coordinator.join()

    def _place(self, shards: Sequence[Any]) -> Any:
        return tf.nest.map_structure(tf.constant, shards[0])


def make_runner(session: Session) -> Runner:
    """The runner for the session's strategy."""
    if session.spec.kind == "ps":
        return ScheduledRunner(session)
    return SynchronousRunner(session)
