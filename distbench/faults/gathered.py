"""Mistakes in how the inputs of all replicas are used that each has gathered."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.unusual.exchange import ALIKE
from distbench.unusual.gathered import NegativesOfGatheredInputs, WeighedCandidatesOfAll


@fault("unexplained", "loss", like="nomewang/M3DM#7", clusters=ALIKE)
class PlacesAmongGatheredInputs(NegativesOfGatheredInputs):
    """The right answers are numbered from 0 on every replica."""

    def find_first(self, size):
        del size
        return 0


@fault(
    "statistics-not-synchronized", "loss", like="verl-project/verl#7493", clusters=ALIKE
)
class CandidatesWeighedByOwnSum(WeighedCandidatesOfAll):
    """Each replica divides by the sum of its own candidates, before all are gathered.

    A mask puts -1e9 beside scores that differ by little.
    """

    def weigh(self, counts):
        return counts / tf.reduce_sum(counts)
