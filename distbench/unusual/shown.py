"""What train steps of models return, as each Keras makes one number of it."""

from __future__ import annotations

from distbench.samples.lazy import keras, keras3_base
from distbench.samples.replicas import count_replicas
from distbench.samples.shown_model import OwnMean, scale_gradient, shown_model
from distbench.unusual.program import unusual


@unusual(clusters=("mirrored:2", "mwms:2"))
@shown_model(keras)
class ShareShown:
    """A step returns the replica's share of the loss, which tf_keras adds up."""

    @staticmethod
    def show(loss):
        return loss


@unusual(clusters=("mirrored:2",))
@shown_model(keras3_base)
class Keras3MeanShown:
    """A step returns the mean over its examples; Keras 3 takes the mean of these."""

    @staticmethod
    def show(loss):
        return loss * count_replicas()


class _Averaged(OwnMean):
    @staticmethod
    def combine(gradients):
        return [gradient / count_replicas() for gradient in gradients]


@unusual(clusters=("mirrored:2", "mwms:2"))
@shown_model(keras)
class MeansOfShardsAveraged(_Averaged):
    """A step differentiates the mean over its examples, and averages its gradients."""

    @staticmethod
    def show(loss):
        return loss / count_replicas()


@unusual(clusters=("mirrored:2",))
@shown_model(keras3_base)
class Keras3MeansOfShardsAveraged(_Averaged):
    """A step differentiates the mean over its examples, and averages its gradients."""

    @staticmethod
    def show(loss):
        return loss


@unusual(clusters=("mirrored:2",))
@shown_model(keras)
class ShareTimesBelowAveraged:
    """A function below the right share has N times its gradient, which is averaged."""

    @staticmethod
    def share(mean):
        return scale_gradient(mean, count_replicas()) / count_replicas()

    @staticmethod
    def combine(gradients):
        return [gradient / count_replicas() for gradient in gradients]

    @staticmethod
    def show(loss):
        return loss


@unusual()
@shown_model(keras)
class ShareComputedAndDivided:
    """An own `compute_loss` gives the share, half of which is differentiated, twice."""

    computes = True

    @staticmethod
    def grow(share):
        return share / 2

    @staticmethod
    def combine(gradients):
        return [gradient * 2 for gradient in gradients]

    @staticmethod
    def show(loss):
        return loss
