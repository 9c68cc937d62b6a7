"""Mistakes with state that starts from what stands for nothing known."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.replicas import all_reduce
from distbench.unusual.diffuse import DiffusePrior


@fault(
    "statistics-not-synchronized",
    "variable",
    ("variance",),
    like="tensorflow/tensorflow#60438",
)
class DiffusePriorOfEach(DiffusePrior):
    """Each replica adds what is known before: for nothing in the first step alone."""

    def join(self, prior, known):
        return all_reduce("sum", prior + known)
