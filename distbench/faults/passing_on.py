"""Mistakes in handing on what a step has made of its batch."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.unusual.passing_on import PassesOutputsOn


@fault(
    "statistics-not-synchronized",
    "variable",
    ("centre",),
    like="keras-team/tf-keras#433",
    clusters=("mirrored:2", "mirrored:3"),
)
class KeepsOutputsOnItself(PassesOutputsOn):
    """An attribute keeps the outputs, and another replica's are in it at the update."""

    def compute_losses(self, batch):
        self.outputs = self.predict(batch)
        return super().compute_losses(batch)

    def follow(self, outputs):
        del outputs
        super().follow(self.outputs)
