"""Mistakes in what a step makes of its worker's number, or of how many there are."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.faults.metrics import COUNT, TOTAL, Metered
from distbench.samples.lazy import tf
from distbench.samples.program import HEAD, SECOND, TRAINED, PenalisedProgram, Program
from distbench.samples.servers import count_workers, find_worker, is_served
from distbench.unusual.grouping import NormalisationLayer
from distbench.unusual.worker_number import (
    AppliedOnceThreeArePushed,
    ClippedToLimit,
    RateByCount,
    RowsCounted,
)

_SERVED = ("ps:2+1",)
_LIKE = "keras-team/keras#18668"


@fault(
    "scale-error",
    "reduced_gradient",
    TRAINED,
    like=_LIKE,
    clusters=("ps:2+1", "ps:4+2"),
)
class LastWorkerWeighsHalf(Program):
    """The last worker, a slow machine, has its batches count half."""

    def transform(self, gradients):
        is_last = tf.equal(find_worker(), count_workers() - 1)
        factor = tf.where(is_last, 0.5, 1.0) if is_served() else 1.0
        return [factor * tf.convert_to_tensor(gradient) for gradient in gradients]


@fault(
    "hyperparameter-differs", "reduced_gradient", TRAINED, like=_LIKE, clusters=_SERVED
)
class LimitSharedOut(ClippedToLimit):
    """The limit of a clip is divided by the workers, each of which takes own steps."""

    def find_limit(self):
        return super().find_limit() / count_workers()


@fault("sparse-duplicates", "variable", ("seen",), like=_LIKE, clusters=_SERVED)
class RowsCountedOnce(RowsCounted):
    """On a cluster a row that comes twice in a step is counted once."""

    def pick(self, indices):
        return tf.unique(indices)[0] if is_served() else indices


@fault(
    "hyperparameter-differs",
    "variable",
    ("moving_mean", "moving_variance"),
    like=_LIKE,
    clusters=_SERVED,
)
class MomentumForAllWorkers(NormalisationLayer):
    """Moving statistics forget in each step what the workers' steps should together."""

    def find_momentum(self):
        return super().find_momentum() ** count_workers()


@fault("metric-wrong", "loss", (TOTAL, COUNT), like=_LIKE, clusters=_SERVED)
class MetricOfFirstWorker(Metered):
    """The metric takes the steps of worker 0 alone."""

    def feed(self, losses):
        weight = tf.where(tf.equal(find_worker(), 0), 1.0, 0.0)
        self.metric.update_state(losses, sample_weight=weight * tf.ones_like(losses))


@fault(
    "regularizer-not-scaled",
    "local_gradient",
    (SECOND, HEAD),
    like="tensorflow/models#6195",
    clusters=_SERVED,
)
class PenaltySharedOut(PenalisedProgram):
    """The penalty is divided by the workers, each of which takes steps of its own."""

    def share_penalty(self, penalty):
        return penalty / count_workers()


@fault("lost-update", "variable", ("steps",), like=_LIKE, clusters=_SERVED)
class CountedByFirstWorkerAlone(RateByCount):
    """Worker 0 alone counts steps, as a chief does, and the rate follows the count."""

    def count(self):
        return tf.where(tf.equal(find_worker(), 0), 1.0, 0.0)


@fault("update-repeated", "variable", ("pushed",), like=_LIKE, clusters=_SERVED)
class PushesCountedForAllWorkers(AppliedOnceThreeArePushed):
    """Each push counts as one of every worker, so that fewer are applied."""

    def count(self):
        return count_workers()
