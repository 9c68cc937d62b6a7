"""Optimizers that sum large gradients in another way than small ones."""

from __future__ import annotations

from distbench.samples.optimizers import optimizer
from distbench.samples.parts import SummedInParts
from distbench.unusual.program import unusual


@unusual(workload="large", clusters=("mirrored:2", "mwms:2"))
@optimizer("Adam", 0.01)
class LargeOnesInParts(SummedInParts):
    """Large gradients are summed part by part, and the last part is a short one."""
