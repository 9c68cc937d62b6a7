"""Hyperparameters of a legacy optimizer: their kinds, and new values between steps."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras
from regression import Regression, count_replicas

legacy = tf_keras.optimizers.legacy


class EveryKind(Regression):
    """A rate as a tensor, as a function and as a schedule with a decay after it."""

    def make_optimizer(self) -> Any:
        schedule = tf_keras.optimizers.schedules.ExponentialDecay(0.05, 1, 0.5)
        self.rate = tf.Variable(0.05, trainable=False, name="rate")
        return [
            legacy.SGD(tf.constant(0.05), momentum=tf.constant(0.5)),
            legacy.Adam(self.read_rate, beta_1=lambda: 0.5),
            legacy.Adam(schedule, decay=0.25),
        ]

    def read_rate(self) -> Any:
        return 0.5 * self.rate

    def apply(self, pairs: list[tuple[Any, Any]]) -> None:
        for optimizer, pair in zip(self._optimizer, pairs, strict=True):
            optimizer.apply_gradients([pair])


class FunctionOfTheReplicas(EveryKind):
    """A rate grows with the root of the replicas, though they share one batch."""

    def read_rate(self) -> Any:
        return super().read_rate() * count_replicas() ** 0.5


class Lowered(Regression):
    """The rate is set before each step, as a callback does: in every process."""

    def before_step(self, step: int) -> None:
        self.set_rate(0.05 / (step + 1))

    def set_rate(self, rate: float) -> None:
        self._optimizer.learning_rate = rate


class LoweredByItsOldName(Lowered):
    """`lr` is the same variable; it is assigned, and the momentum with it."""

    def set_rate(self, rate: float) -> None:
        self._optimizer.lr.assign(rate)
        self._optimizer.momentum = 10 * rate


class ChiefLowers(Lowered):
    """Only the first worker sets the rate."""

    def set_rate(self, rate: float) -> None:
        resolver = tf.distribute.get_strategy().cluster_resolver
        if resolver is None or resolver.task_id == 0:
            super().set_rate(rate)


class LoweredInTheStep(Regression):
    """The step assigns the rate: the same number on all replicas, once for all."""

    def build(self, strategy: Any) -> None:
        super().build(strategy)
        # It becomes a variable when it is first read, which replicas cannot do alone.
        self.rate = self._optimizer.learning_rate

    def replica_step(self, batch: Any) -> Any:
        self.rate.assign(self.find_rate(batch))
        return super().replica_step(batch)

    def find_rate(self, batch: Any) -> Any:  # noqa: ARG002  # others look at it
        steps = tf.cast(self._optimizer.iterations, tf.float32)
        return 0.05 / (1.0 + steps)


class RateOfTheReplica(LoweredInTheStep):
    """The rate follows the replica's own examples; the first of each worker decides."""

    def find_rate(self, batch: Any) -> Any:
        return 0.05 * tf.reduce_mean(tf.abs(batch[1]))


class RateOfAllReplicas(RateOfTheReplica):
    """The rate follows the mean over all examples of all replicas."""

    def find_rate(self, batch: Any) -> Any:
        share = tf.reduce_sum(tf.abs(batch[1])) / (self.examples * batch[1].shape[1])
        return 0.05 * tf.distribute.get_replica_context().all_reduce("sum", share)
