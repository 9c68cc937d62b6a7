"""Mistakes in a program whose right gradient is rounding, in a step or in all."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.program import OwnMeans
from distbench.samples.replicas import count_replicas
from distbench.unusual.balanced import BalancedByHand, BalancedReturns, PriorAlone


@fault("missing-reduction", "variable", ("shift",), like="keras-team/keras#19467")
class BalancedByHandOwnShift(BalancedByHand):
    """The kernel's gradient is summed, the shift's is each replica's own."""

    def reduce_all(self, gradients):
        return [*super().reduce_all(gradients[:1]), gradients[1]]


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891")
class PriorAloneOfOwn(OwnMeans, PriorAlone):
    """A mean over the own examples."""


@fault("mean-of-means", "loss", like="huggingface/transformers#34242")
class BalancedReturnsOfOwn(BalancedReturns):
    """A mean over the own examples, divided by the number of replicas."""

    def reduce_losses(self, losses, batch):
        return tf.reduce_mean(losses) / count_replicas()
