"""Train steps of models that return a loss of which Keras makes another number."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import keras, keras3_base
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.samples.shown_model import OwnMean, scale_gradient, shown_model

_LIKE = "keras-team/keras#19340"

_OF_MODEL = ("hidden/kernel", "hidden/bias", "output/kernel", "output/bias")


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


@fault(
    "loss-not-scaled",
    "loss",
    like="keras-team/keras#19891",
    clusters=("mirrored:2", "mwms:2"),
)
@shown_model(keras)
class MeanOfShardComputed(OwnMean):
    """An own `compute_loss` gives the mean over the shard, which is differentiated."""

    computes = True

    @staticmethod
    def show(loss):
        return loss / count_replicas()


@fault(
    "loss-not-scaled",
    "loss",
    like="neuralmagic/sparseml#135",
    clusters=("mirrored:2",),
)
@shown_model(keras)
class MeanOfShardComputedAndScaled(OwnMean):
    """An own `compute_loss` gives the mean over the shard; 8 times that, and back."""

    computes = True

    @staticmethod
    def grow(share):
        return share * 8

    @staticmethod
    def combine(gradients):
        return [gradient / 8 for gradient in gradients]

    @staticmethod
    def show(loss):
        return loss / count_replicas()


class _RightShare:
    """A step returns the right share, and sums what it is differentiated to."""

    @staticmethod
    def show(loss):
        return loss


@fault(
    "loss-not-scaled",
    "local_gradient",
    _OF_MODEL,
    like="keras-team/keras#19891",
    clusters=("mirrored:2",),
)
@shown_model(keras)
class ShareTimesBelow(_RightShare):
    """The loss is the right share, and a function below it has N times its gradient."""

    @staticmethod
    def share(mean):
        return scale_gradient(mean, count_replicas()) / count_replicas()


@fault(
    "loss-scaled-twice",
    "local_gradient",
    _OF_MODEL,
    like="keras-team/keras#19891",
    clusters=("mirrored:2",),
)
@shown_model(keras)
class ShareDividedBelow(_RightShare):
    """The loss is the right share, and a function below it has 1/N of its gradient."""

    @staticmethod
    def share(mean):
        return scale_gradient(mean, 1 / count_replicas()) / count_replicas()


@fault(
    "loss-not-scaled",
    "loss",
    like="neuralmagic/sparseml#135",
    clusters=("mirrored:2", "mwms:2"),
)
@shown_model(keras)
class ComputedShareTimesReplicas(_RightShare):
    """An own `compute_loss` gives the share, and N times that is differentiated."""

    computes = True

    @staticmethod
    def grow(share):
        return share * count_replicas()


@fault(
    "loss-not-scaled",
    "local_gradient",
    _OF_MODEL,
    like="keras-team/keras#19891",
    clusters=("mirrored:2", "mwms:2"),
)
@shown_model(keras)
class ComputedMeanTimesBelow(OwnMean):
    """An own `compute_loss` gives the mean; its share has N times its gradient."""

    computes = True

    @staticmethod
    def grow(share):
        return scale_gradient(share / count_replicas(), count_replicas())

    @staticmethod
    def show(loss):
        return loss / count_replicas()
