"""What a step of the global batch hands on, for shards that go on from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from distbench.trace import WHOLE, Phase, TraceKey, Value
from distbench.worker.stepping.session import Session
from distbench.worker.stepping.steps import Step
from distbench.worker.taps.feeds import Fed, Place

_PHASE: Phase = "reduced_gradient"

LedSteps = defaultdict[frozenset[Place], Step]
"""What runs shards that go on, by the updates that are fed: a step may leave some out,
such as an actor's that only every second one makes."""


class Handed:
    """The reduced gradients of steps after whose updates a replica goes on.

    It goes on from updates that all replicas made. So what is due of its later
    gradients, where a step updates several times, is what its shard gives after those
    of the global batch. So is what is due of state that it makes for itself of what
    trains, as of a copy that follows: by the update of its own shard alone, that would
    be another one on each, and the next step would seem to depend on who gets which
    example.

    Args:
        session: Runs the shards.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._steps: list[Fed] = []
        self._is_often = False
        self.leads_own = False
        """Whether shards of any step leave state that a replica has for itself."""

    def keep(self, values: Mapping[TraceKey, Value], step: int) -> None:
        """Keep those of a step, and forget those of later ones."""
        found = {
            (key.call, key.phase, key.variable): value
            for key, value in values.items()
            if key.step == step and key.phase == _PHASE and key.replica == WHOLE
        }
        is_often = any(call > 0 for call, _, _ in found)
        self._is_often = self._is_often or is_often
        self._steps[step:] = [found if is_often or self.leads_own else {}]

    def __getitem__(self, step: int) -> Fed:
        return self._steps[step]

    @property
    def is_often(self) -> bool:
        """Whether a step updates several times, as that of a GAN does."""
        return self._is_often

    @contextmanager
    def lead(self, step: int, batch: Any, steps: LedSteps) -> Iterator[Step]:
        """Inside, a shard goes on from the updates of the global batch.

        Args:
            step: Its number.
            batch: The shard.
            steps: The traces to choose from.

        Yields:
            What to run it by.
        """
        board, by = self._session.board, steps[frozenset(self[step])]
        with board.feed_at(_PHASE):
            board.fed = self[step]
            with self._session.guard("step"):
                # The feeds come into being while the step is traced.
                by.trace([batch])
            board.set_feeds()
            yield by
