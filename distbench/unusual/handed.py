"""Correct optimizers that do something with gradients before these are summed."""

from __future__ import annotations

from distbench.samples.lazy import legacy, tf
from distbench.samples.optimizers import NoiseBeforeTheSum, OwnRule, optimizer
from distbench.samples.replicas import (
    all_reduce,
    count_replicas,
    find_replica,
    make_zeros,
)
from distbench.unusual.program import unusual


@unusual(workload="linear")
@optimizer("SGD", 0.05)
class ThirdsAddedUp:
    """Each replica divides by 3 before the sum, which rounds otherwise than after."""

    def _aggregate_gradients(self, grads_and_vars):
        pairs = [(gradient / 3.0, variable) for gradient, variable in grads_and_vars]
        return super()._aggregate_gradients(pairs)


@unusual(workload="linear")
@optimizer("SGD", 0.05)
class CentredBeforeTheSum:
    """Gradient centralisation on each replica; linear, so it may precede the sum."""

    def _aggregate_gradients(self, grads_and_vars):
        pairs = [
            (gradient - tf.reduce_mean(gradient, axis=0), variable)
            for gradient, variable in grads_and_vars
        ]
        return super()._aggregate_gradients(pairs)


@unusual(workload="embedding")
@optimizer("SGD", 0.1, momentum=0.9)
class DecayInShares:
    """Every replica adds 1/N of the decay to its own gradient; they make up one."""

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        share = 0.05 / count_replicas()
        pairs = [(tf.convert_to_tensor(g) + share * v, v) for g, v in grads_and_vars]
        return super().apply_gradients(pairs, name, **kwargs)


@unusual(workload="linear")
@optimizer("SGD", 0.05)
class NoiseByTheFirst(NoiseBeforeTheSum):
    """The first replica adds noise to its gradient, and no other does."""

    def draw(self, gradient, place):
        share = 1.0 if find_replica() == 0 else 0.0
        return share * self.draw_by((3, self.iterations, place), gradient)


@unusual(workload="embedding")
@optimizer("Optimizer", "KeepsTheLastGradient")
class KeepsTheLastGradient(OwnRule):
    """Sums by itself and keeps the sum for the next step, as Adan does."""

    last = None

    def apply_gradients(self, grads_and_vars, name=None, **options):
        pairs = [(tf.convert_to_tensor(g), v) for g, v in grads_and_vars]
        variables = [variable for _, variable in pairs]
        sums = list(all_reduce("sum", [gradient for gradient, _ in pairs]))
        with tf.init_scope():
            if self.last is None:
                self.last = make_zeros(variables, "last", "ONLY_FIRST_REPLICA")
        steps = [g - 0.5 * last for g, last in zip(sums, self.last, strict=True)]
        result = legacy.Optimizer.apply_gradients(
            self,
            zip(steps, variables, strict=True),
            name,
            experimental_aggregate_gradients=False,
        )
        for last, total in zip(self.last, sums, strict=True):
            last.assign(total)
        return result
