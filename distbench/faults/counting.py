"""Mistakes beside what each replica counts of its own examples."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.program import TRAINED
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.unusual.counting import NegativesOfAllCounted, OneMoreThanTheCount


@fault("unexplained", "loss", like="nomewang/M3DM#7")
class PlacesInTheOwnShardCounted(NegativesOfAllCounted):
    """The right answers are numbered from 0 on every replica, which counts its own."""

    def find_first(self, size):
        del size
        return 0


@fault(
    "scale-error",
    "loss",
    ("", *TRAINED),
    like="huggingface/transformers#34242",
    clusters=WIDE,
)
class OneMoreThanTheMeanCount(OneMoreThanTheCount):
    """One more is added to the mean of the replicas' numbers, not an N-th of one."""

    def reduce_losses(self, losses, batch):
        return super().reduce_losses(losses, batch) / count_replicas()

    def count(self, number):
        return super().count(number / count_replicas())


@fault(
    "statistics-not-synchronized",
    "loss",
    ("", *TRAINED),
    like="huggingface/transformers#34242",
    clusters=WIDE,
)
class MeanOfCountsWithOneMoreEach(OneMoreThanTheCount):
    """Each replica counts one more, and the loss is divided by the mean of that."""

    def join(self, own):
        return all_reduce("mean", self.count(own))
