"""Mistakes with signs: of which a rule leaves a wrong loss, or a loss is made."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import legacy, tf
from distbench.samples.program import OwnMeans, Program
from distbench.samples.replicas import count_replicas
from distbench.unusual.signs import AsManyAboveAsBelow
from distbench.unusual.stepping import SignOfScaledGradient


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class OwnMeanUnderSigns(OwnMeans, Program):
    """A mean over the own examples, under a rule that takes the sign of the sum."""

    def make_optimizer(self):
        signs = SignOfScaledGradient.take_signs
        return legacy.SGD(0.01, gradient_transformers=[signs])


@fault("mean-of-means", "loss", like="huggingface/transformers#34242", clusters=WIDE)
class AsManyAboveAsBelowOfOwn(AsManyAboveAsBelow):
    """A mean of absolute errors is an own one, divided by N."""

    def reduce_losses(self, losses, batch):
        return tf.reduce_mean(losses) / count_replicas()
