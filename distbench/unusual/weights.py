"""Weights of examples, as they are meant."""

from __future__ import annotations

from distbench.samples.counted import Counted
from distbench.samples.weighted_model import weighted_model
from distbench.unusual.program import unusual


@unusual(clusters=("mirrored:2", "mirrored:4"))
@weighted_model("sum_over_batch_size")
class WeightsOverOwnExamples:
    """Keras divides weighted losses by the number of examples, not by the weights."""


@unusual(clusters=("mirrored:2", "mwms:3"))
class DividedByAllPositives(Counted):
    """A loss is divided by the positives of all replicas, and by no less than 1."""
