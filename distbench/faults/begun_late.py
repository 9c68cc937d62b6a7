"""Mistakes in a term of the loss that is 0 in the first step."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import DENSE, WholePenalty
from distbench.samples.replicas import count_replicas
from distbench.unusual.begun_late import (
    HeldToFirstAnswers,
    HeldToFirstAnswersUnderStatistics,
    HeldToFirstWeights,
)


@fault(
    "regularizer-not-scaled",
    "local_gradient",
    DENSE,
    like="tensorflow/models#6195",
    clusters=WIDE,
)
class HeldToFirstWeightsInFull(WholePenalty, HeldToFirstWeights):
    """Every replica has the penalty on the way from the first weights in full."""


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class OwnMeanOfFirstAnswers(HeldToFirstAnswers):
    """How far outputs are from the first ones is a mean over the own examples."""

    def average(self, distances):
        return tf.reduce_mean(distances)


@fault("mean-of-means", "loss", like="huggingface/transformers#34242", clusters=WIDE)
class MeanOfMeansOfFirstAnswers(HeldToFirstAnswers):
    """How far outputs are from the first ones is an own mean, divided by N."""

    def average(self, distances):
        return tf.reduce_mean(distances) / count_replicas()


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class OwnMeanOfFirstAnswersUnderStatistics(HeldToFirstAnswersUnderStatistics):
    """Batch statistics; the distance from the first outputs is an own mean."""

    def average(self, distances):
        return tf.reduce_mean(distances)
