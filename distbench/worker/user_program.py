"""A train program that the user wrote, as the bench runs it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from distbench.errors import BadInputError
from distbench.worker.intercept import call_converted
from distbench.worker.program import Program, name_subject


class UserProgram(Program):
    """A train program that the user wrote."""

    def __init__(self, subject: Any) -> None:
        self._subject: Any = subject() if inspect.isclass(subject) else subject
        declared = getattr(self._subject, "loss_reduction", None)
        if declared not in (None, "sum", "mean"):
            raise BadInputError(
                f"Train program '{name_subject(subject)}': loss_reduction must be "
                f"'sum', 'mean' or None. Received: {declared!r}."
            )
        self.loss_reduction = declared

    def build(self, strategy: tf.distribute.Strategy) -> None:
        """Let the user's program make variables and optimizer."""
        self._subject.build(strategy)

    def replica_step(self, batch: Any) -> Any:
        """Run the user's step.

        Raises:
            BadInputError: It returned no loss.
        """
        loss = call_converted(self._subject.replica_step, batch)
        if loss is None:
            raise BadInputError(
                f"Train program '{name_subject(self._subject)}': replica_step returned "
                "no loss. Expected a scalar tensor: its own loss. Received: None. "
                "Return the loss at the end of the step."
            )
        return loss

    def variables(self) -> Sequence[Any]:
        """What the user's program lists."""
        return list(self._subject.variables())

    def optimizers(self) -> Sequence[Any]:
        """One, several or none."""
        optimizer = self._subject.optimizer()
        if optimizer is None:
            return []
        return list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]

    def data(self, step: int) -> Any:
        """The user's global batch of a step."""
        if not hasattr(self._subject, "data"):
            raise BadInputError(
                f"Train program '{name_subject(self._subject)}' has dataset_fn but no "
                "data(step). Expected data(step): the global batch as NumPy arrays."
            )
        return self._subject.data(step)
