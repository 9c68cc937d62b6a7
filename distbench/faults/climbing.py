"""Mistakes in steps that climb up the slope first."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import BUFFERS, TRAINED, OwnMeans
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.unusual.climbing import (
    AscendsAsTheSlopeIsSteep,
    AscendsFirst,
    AscendsUnderStatistics,
    ClimbsOnValues,
    ClimbsThenLimits,
    KeepsWhatTheClimbAdds,
)
from distbench.unusual.exchange import ALIKE


@fault(
    "scale-error",
    "loss",
    like="sql-machine-learning/elasticdl#89",
    clusters=WIDE,
)
class ClimbsFurtherWithReplicas(AscendsFirst):
    """Sharpness-aware: how far it goes up is scaled with the number of replicas."""

    def find_reach(self):
        return super().find_reach() * count_replicas()


@fault(
    "statistics-not-synchronized",
    "loss",
    like="deepspeedai/DeepSpeed#490",
    clusters=ALIKE,
)
class ClimbsByOwnNorm(ClimbsOnValues):
    """Sharpness-aware: the way up is the sum, divided by the own gradient's norm."""

    def measure(self, own, summed):
        return tf.linalg.global_norm(own)


@fault(
    "missing-reduction",
    "reduced_gradient",
    TRAINED,
    like="keras-team/keras#19308",
    clusters=WIDE,
)
class NobodySumsAfterTheClimb(AscendsFirst):
    """Sharpness-aware: of the two gradients only the first one is summed."""

    def apply(self, gradients):
        self.optimizer().apply_gradients(
            zip(gradients, self.trained(), strict=True),
            experimental_aggregate_gradients=False,
        )


@fault("mean-instead-of-sum", "loss", like="keras-team/keras#20541", clusters=WIDE)
class AscendsByTheMeanUnderStatistics(AscendsAsTheSlopeIsSteep):
    """Batch statistics; the way up is the mean of the replicas' shares of a slope."""

    def add_up(self, gradients):
        return all_reduce("mean", gradients)


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class AscendsOnOwnMeansUnderStatistics(OwnMeans, AscendsUnderStatistics):
    """Batch statistics; both losses of a climb are means over the own examples."""


@fault("unexplained", "loss", like="deepspeedai/DeepSpeed#490", clusters=ALIKE)
class AscendsByOwnNormUnderStatistics(AscendsUnderStatistics):
    """Batch statistics; the way up is the sum, divided by the own gradient's norm."""

    def find_ways(self, gradients):
        norm = tf.linalg.global_norm(gradients)
        return [0.05 * gradient / norm for gradient in self.add_up(gradients)]


@fault(
    "mean-instead-of-sum",
    "variable",
    tuple(f"added{place}" for place in range(len(TRAINED))),
    like="keras-team/keras#20541",
    clusters=("mirrored:2", "mwms:3"),
)
class KeepsWhatTheClimbAddsToOwn(KeepsWhatTheClimbAdds):
    """Sharpness-aware: what is kept is of the own gradients, and is averaged."""

    def take(self, gradient):
        return gradient


@fault(
    "nonlinear-before-reduction",
    "variable",
    (*TRAINED, *BUFFERS),
    like="tensorflow/tensorflow#33929",
    clusters=("mirrored:2", "mwms:2"),
)
class ClimbsThenLimitsOwn(ClimbsThenLimits):
    """Sharpness-aware: own gradients are limited, and averages of weights follow."""

    def take(self, gradients):
        return all_reduce("sum", self.limit(gradients))
