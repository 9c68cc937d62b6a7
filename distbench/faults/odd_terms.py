"""Mistakes beside a term of which repeated examples do not tell what it is."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.program import OwnMeans
from distbench.samples.replicas import all_reduce
from distbench.unusual.exchange import ALIKE
from distbench.unusual.odd_terms import (
    MasksSeededBySteps,
    NormBesideShares,
    OneMoreThanHard,
    SlopesAroundTheMeanOfAll,
)


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891")
class NormBesideOwnMean(NormBesideShares):
    """Beside an own mean stands the norm of each replica's own outputs."""

    def share(self, losses):
        return tf.reduce_mean(losses)


@fault("loss-not-scaled", "loss", like="huggingface/transformers#34242")
class OneMoreThanOwnHard(OneMoreThanHard):
    """A term is divided by one more than each replica has hard examples itself."""

    def count(self, hard):
        return hard


@fault("mean-of-means", "loss", like="huggingface/transformers#34242", clusters=ALIKE)
class SlopesAroundMeanOfMeans(SlopesAroundTheMeanOfAll):
    """Slopes are drawn to the plain mean of the replicas' means."""

    def find_mean(self, slopes):
        return all_reduce("mean", tf.reduce_mean(slopes))


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=("mwms:2",))
class OwnMeansOfSeededMasks(OwnMeans, MasksSeededBySteps):
    """Each replica masks units by draws of its own, and takes its own mean."""
