"""Mistakes beside what each replica counts of its own examples."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.unusual.counting import NegativesOfAllCounted


@fault("unexplained", "loss", like="nomewang/M3DM#7")
class PlacesInTheOwnShardCounted(NegativesOfAllCounted):
    """The right answers are numbered from 0 on every replica, which counts its own."""

    def find_first(self, size):
        del size
        return 0
