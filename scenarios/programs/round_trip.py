"""Legacy optimizers rebuilt from their configuration, as saved ones are.

On one device the original trains, on a cluster the rebuilt one.
"""

from __future__ import annotations

from typing import Any

import tf_keras
from regression import Regression, all_reduce, count_replicas

legacy = tf_keras.optimizers.legacy


class Rebuilt(Regression):
    """Clip, decay, schedule and momentum are in the configuration."""

    def make_optimizer(self) -> Any:
        optimizer = self.make_original()
        if count_replicas() == 1:
            return optimizer
        return type(optimizer).from_config(optimizer.get_config())

    def make_original(self) -> Any:
        schedule = tf_keras.optimizers.schedules.ExponentialDecay(0.05, 1, 0.5)
        return legacy.SGD(
            schedule, momentum=0.9, nesterov=True, decay=0.25, global_clipnorm=0.5
        )


class Forgetful(legacy.SGD):
    """A subclass whose configuration lacks what it adds to that of its base."""

    def __init__(self, learning_rate: float, shrink: float = 1.0, **options: Any):
        super().__init__(learning_rate, **options)
        self._set_hyper("shrink", shrink)

    def _resource_apply_dense(
        self, grad: Any, var: Any, apply_state: Any = None
    ) -> Any:
        scaled = grad * self._get_hyper("shrink", var.dtype)
        return super()._resource_apply_dense(scaled, var, apply_state)


class OwnHyperparameterLost(Rebuilt):
    """The rebuilt optimizer has the default of what the configuration lacks."""

    def make_original(self) -> Any:
        return Forgetful(0.05, shrink=0.5)


class AggregatorLost(Rebuilt):
    """An aggregator is no part of any configuration: the rebuilt optimizer sums."""

    def make_original(self) -> Any:
        return legacy.SGD(
            0.05,
            momentum=0.9,
            gradient_aggregator=lambda pairs: all_reduce("mean", pairs),
        )

    def compute_loss(self, batch: Any) -> Any:
        # An average of what is N times too large is the sum.
        return super().compute_loss(batch) * count_replicas()
