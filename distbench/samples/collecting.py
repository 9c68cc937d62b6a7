"""An optimizer whose replicas collect their own gradients before they are summed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from distbench.samples.lazy import tf
from distbench.samples.replicas import count_replicas


class Collecting:
    """Replicas collect two steps' gradients, each its own; then the sum is applied.

    A stock optimizer is its base. In the step between it gets zeros, so that no
    collective stands in a branch.
    """

    iterations: Any
    collected: list[Any] | None = None
    read_as = "SUM"

    def apply_gradients(
        self, grads_and_vars: Iterable[Any], name: Any = None, **options: Any
    ) -> Any:
        """Collect, and hand over what is due."""
        pairs = [(tf.convert_to_tensor(g), v) for g, v in grads_and_vars]
        if self.collected is None:
            with tf.init_scope():
                _ = self.iterations  # which is made when it is asked for
                self.collected = [
                    make_own(v, i, self.read_as) for i, (_, v) in enumerate(pairs)
                ]
        is_due = self.iterations % 2 == 1
        handed = []
        for own, (gradient, variable) in zip(self.collected, pairs, strict=True):
            total = own.read_value() + self.times_share * gradient
            due = tf.where(is_due, total, 0.0) / self.times_share
            handed.append((due, variable))
            own.assign(tf.where(self.resets(is_due), 0.0, total))
        return super().apply_gradients(handed, name, **options)  # type: ignore[misc]

    @property
    def times_share(self) -> Any:
        """How many times its share each replica keeps: N of what is read as a mean."""
        return count_replicas() if self.read_as == "MEAN" else 1.0

    def resets(self, is_due: Any) -> Any:
        """Whether the replica's own sum begins anew."""
        return is_due


def make_own(variable: Any, place: int, read_as: str = "SUM") -> Any:
    """A variable of which every replica has its own copy; it is read as their sum."""
    return tf.Variable(
        tf.zeros(variable.shape, variable.dtype),
        name=f"collected_{place}",
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation[read_as],
    )
