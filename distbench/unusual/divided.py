"""Unusual but correct sums of what is made small for the way."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.optimizers import optimizer
from distbench.samples.program import OwnReduction
from distbench.samples.replicas import count_replicas
from distbench.unusual.program import unusual


@unusual()
class DividedFirst(OwnReduction):
    """Where there are several replicas, gradients are made small for the way."""

    factor = 10.0

    def reduce(self, gradients):
        if count_replicas() == 1:
            return gradients
        small = [tf.convert_to_tensor(g) * self.find_share() for g in gradients]
        return [g * self.factor for g in super().reduce(small)]

    def find_share(self):
        """What they are multiplied by."""
        return 1 / self.factor


@unusual(workload="linear")
@optimizer("SGD", 0.1, momentum=0.9)
class SumOfThirds:
    """An optimizer that does so with a third where it would sum alone."""

    def _aggregate_gradients(self, grads_and_vars):
        pairs = list(grads_and_vars)
        if count_replicas() == 1:
            return pairs
        thirds = [(g * (1 / 3), v) for g, v in pairs]
        return [(g * 3.0, v) for g, v in super()._aggregate_gradients(thirds)]
