"""Mistakes with the weights of examples, which even shards do not hide."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.weighted_model import weighted_model


@fault(
    "mean-of-means",
    "loss",
    ("",),
    like="huggingface/transformers#34242",
    clusters=("mirrored:2", "mirrored:4"),
)
@weighted_model("mean_with_sample_weight")
class MeanOverOwnWeights:
    """Keras divides by the weights of the replica's own examples."""
