"""A train program with an input pipeline of its own in the place of `data(step)`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import tensorflow as tf

from distbench.errors import BadInputError, ShortEpochError
from distbench.scenario import Scenario
from distbench.worker.subjects.counterparts import Counterparts
from distbench.worker.subjects.pipeline import (
    GlobalBatch,
    iterate,
    read_batches,
    read_epoch,
    read_worker_epochs,
    write_epoch,
)
from distbench.worker.subjects.user_program import UserProgram


class PipelineProgram(UserProgram):
    """Trains on what the replicas of the cluster got from its pipeline."""

    def __init__(self, subject: Any) -> None:
        super().__init__(subject)
        self._like: Any = None
        self._given: tuple[GlobalBatch, ...] = ()
        self._counterparts: Counterparts | None = None

    def read_data(
        self,
        strategy: tf.distribute.Strategy,
        folder: Path,
        name: str,
        steps: int,
        others: Sequence[str] = (),
    ) -> None:
        """See `Program`."""
        if isinstance(strategy, tf.distribute.ParameterServerStrategy):
            epoch = read_worker_epochs(self._subject, strategy, steps)
        elif others:
            self._counterparts = Counterparts(folder, others)
            batches = iterate(self._subject, strategy)
            epoch = read_epoch(batches, strategy, steps, self._counterparts.take)
            self._counterparts.write(folder)
        else:
            epoch = read_epoch(iterate(self._subject, strategy), strategy, steps)
        if epoch.batches:
            self._like = epoch.batches[0][0]
        write_epoch(epoch, folder, name)

    def take_data(self, folder: Path, names: Sequence[str], steps: int) -> None:
        """See `Program`."""
        if self._like is None:
            # A run that trains on what another one read has only its own pipeline to
            # tell the structure of a batch.
            own = iterate(self._subject, tf.distribute.get_strategy())
            self._like = next(own, None)
        self._given = read_batches(folder, names, self._like, steps)

    def find_place(self, step: int) -> int:
        """See `Program`."""
        return self._find(step).place

    def is_padded(self, step: int) -> bool:
        """See `Program`."""
        return self._find(step).is_padded

    def data(self, step: int) -> Any:
        """What all replicas got in a step.

        Raises:
            BadInputError: The pipeline came to its end before; a `ShortEpochError`
                where one device has a batch for the step.
        """
        return self._find(step).batch

    def exchange_data(self, step: int) -> Any | None:
        """See `Program`."""
        if self._counterparts is None:
            return None
        given = self._find(step)
        return self._counterparts.exchange(given.place, given.batch)

    def split(
        self,
        scenario: Scenario,  # noqa: ARG002  # the pipeline decides
        replicas: int,  # noqa: ARG002
        step: int = 0,
    ) -> tuple[int, ...]:
        """What each replica got."""
        return self._find(step).shards

    def _find(self, step: int) -> GlobalBatch:
        count = len(self._given)
        if step < count:
            return self._given[step]
        compared = self._compare_epoch(step)
        message = (
            f"The pipeline of '{self.name}' must give a batch for every step. "
            f"Expected: a batch for step {step}. Received: an epoch of {count} "
            f"batches{compared}. Ask for so many steps, or give it more examples."
        )
        if compared and count:
            raise ShortEpochError(message, count)
        raise BadInputError(message)

    def _compare_epoch(self, step: int) -> str:
        """What to say where one device has a batch for a step and the cluster none."""
        own = iterate(self._subject, tf.distribute.get_strategy())
        count = sum(1 for _ in islice(own, step + 1))
        if count <= step:
            return ""
        least = "" if next(own, None) is None else "at least "
        return (
            f", where one device reads {least}{count}: the cluster's is shorter. Each "
            "share that is batched with drop_remainder=True drops what fills no batch, "
            "and steps end with the shortest share"
        )
