"""A train program whose step begins with a teacher, which the loss is made of."""

from __future__ import annotations

from typing import Any

from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.samples.replicas import update


class Taught(Program):
    """Every step the teacher goes a part of the way to the head, and then teaches."""

    kept = 0.75

    def build(self, strategy: Any) -> None:
        """Make the model, and a copy of its head."""
        super().build(strategy)
        start = tf.identity(self.head)
        self.teacher = tf.Variable(start, name="teacher", trainable=False)

    def variables(self) -> list[Any]:
        """The model and the teacher."""
        return [*self.trained(), self.teacher]

    def replica_step(self, batch: Any) -> Any:
        """Move the teacher, then train."""
        self.follow()
        return super().replica_step(batch)

    def follow(self) -> None:
        """Move every copy of the teacher."""
        update(self.teacher, self.move, tf.identity(self.head))

    def move(self, copy: Any, value: Any) -> None:
        """One copy's part of the way."""
        copy.assign(self.kept * copy + (1 - self.kept) * value)

    def compute_losses(self, batch: Any) -> Any:
        """The loss of each example, with how far the teacher's answer is: [n]."""
        hidden = batch[1] @ self.second + self.bias
        apart = tf.tanh(hidden) @ (self.head - self.teacher)
        return super().compute_losses(batch) + tf.reduce_sum(apart**2, axis=1)
