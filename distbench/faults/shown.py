"""Train steps of models that return a loss of which Keras makes another number."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import keras, keras3_base
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.samples.shown_model import OwnMean, shown_model

_LIKE = "keras-team/keras#19340"


@fault("loss-misreported", "loss", ("",), like=_LIKE, clusters=("mirrored:2", "mwms:2"))
@shown_model(keras)
class MeanOfShardShown:
    """A step returns the mean over the own examples, and tf_keras adds these up."""

    @staticmethod
    def show(loss):
        return loss * count_replicas()


@fault("loss-misreported", "loss", ("",), like=_LIKE, clusters=("mirrored:4",))
@shown_model(keras)
class SumOfSharesShown:
    """A step returns the sum of all shares, and tf_keras adds that up once more."""

    @staticmethod
    def show(loss):
        return all_reduce("sum", loss)


@fault("loss-misreported", "loss", ("",), like=_LIKE, clusters=("mirrored:2",))
@shown_model(keras3_base)
class Keras3ShareShown:
    """A step returns the replica's share, and Keras 3 takes the mean of the shares."""

    @staticmethod
    def show(loss):
        return loss


@fault(
    "loss-not-scaled",
    "loss",
    like="keras-team/keras#19891",
    clusters=("mirrored:2", "mwms:2"),
)
@shown_model(keras)
class MeanOfShardSummed(OwnMean):
    """A step differentiates the mean over its examples, and its gradients add up."""

    @staticmethod
    def show(loss):
        return loss / count_replicas()
