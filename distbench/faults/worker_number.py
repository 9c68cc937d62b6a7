"""Mistakes in what a step makes of its worker's number, or of how many there are."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.faults.metrics import COUNT, TOTAL, Metered
from distbench.samples.lazy import tf
from distbench.samples.optimizers import optimizer
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


@fault(
    "lost-update",
    "slot",
    ("SGD/bias/first", "SGD/kernel/first"),
    like=_LIKE,
    clusters=_SERVED,
    workload="linear",
)
@optimizer("SGD", 0.05, name="SGD")
class MomentumOfEachWorker:
    """Each worker moves a momentum of its own, and leaves the other one's."""

    def _create_slots(self, var_list):
        for name in ("first", "other"):
            for variable in var_list:
                self.add_slot(variable, name)

    def _resource_apply_dense(self, grad, var, apply_state=None):
        del apply_state
        is_first = tf.equal(find_worker(), 0)
        first, other = self.get_slot(var, "first"), self.get_slot(var, "other")
        moved = 0.9 * tf.where(is_first, first, other) + grad
        first.assign(tf.where(is_first, moved, first))
        other.assign(tf.where(is_first, other, moved))
        return var.assign_sub(0.05 * moved)


@fault(
    "lost-update",
    "variable",
    ("bias", "kernel"),
    like=_LIKE,
    clusters=_SERVED,
    workload="linear",
)
@optimizer("SGD", 0.05)
class AppliedOnceEachHasPushed:
    """Gradients are kept until every worker has pushed one, and their mean applied."""

    def _create_slots(self, var_list):
        for variable in var_list:
            self.add_slot(variable, "pushed")

    def _resource_apply_dense(self, grad, var, apply_state=None):
        del apply_state
        pushed = self.get_slot(var, "pushed")
        total = pushed + grad / count_workers()
        is_due = tf.equal((self.iterations + 1) % count_workers(), 0)
        pushed.assign(tf.where(is_due, tf.zeros_like(total), total))
        return var.assign_sub(0.05 * tf.where(is_due, total, tf.zeros_like(total)))
