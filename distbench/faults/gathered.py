"""Mistakes in how the inputs of all replicas are used that each has gathered."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.unusual.exchange import ALIKE
from distbench.unusual.gathered import NegativesOfGatheredInputs


@fault("unexplained", "loss", like="nomewang/M3DM#7", clusters=ALIKE)
class PlacesAmongGatheredInputs(NegativesOfGatheredInputs):
    """The right answers are numbered from 0 on every replica."""

    def find_first(self, size):
        del size
        return 0
