"""Mistakes of which a rule that takes signs leaves nothing but a wrong loss."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import legacy
from distbench.samples.program import OwnMeans, Program
from distbench.unusual.stepping import SignOfScaledGradient


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class OwnMeanUnderSigns(OwnMeans, Program):
    """A mean over the own examples, under a rule that takes the sign of the sum."""

    def make_optimizer(self):
        signs = SignOfScaledGradient.take_signs
        return legacy.SGD(0.01, gradient_transformers=[signs])
