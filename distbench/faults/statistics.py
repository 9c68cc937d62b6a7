"""Mistakes in what an optimizer keeps of all gradients at once."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.optimizers import ScaledByEstimate, optimizer
from distbench.samples.replicas import all_reduce
from distbench.samples.tracking import TracksTheNorm


@fault(
    "slot-from-local-gradient",
    "slot",
    ("running",),
    like="deepspeedai/DeepSpeed#490",
    clusters=WIDE,
    workload="embedding",
)
@optimizer("SGD", 0.05)
class NormOfOwnGradients(TracksTheNorm):
    """A running norm takes the mean of the norms that the replicas' gradients have."""


@fault(
    "slot-from-local-gradient",
    "slot",
    ("running",),
    like="deepspeedai/DeepSpeed#490",
    workload="linear",
)
@optimizer("SGD", 0.05)
class LargestOfOwnGradients(TracksTheNorm):
    """A running size takes the largest element of each replica's own gradients."""

    def measure(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return tf.reduce_max([tf.reduce_max(tf.abs(gradient)) for gradient in dense])


@fault(
    "slot-from-local-gradient",
    "slot",
    ("running",),
    like="deepspeedai/DeepSpeed#490",
    clusters=WIDE,
    workload="embedding",
)
@optimizer("SGD", 0.05)
class FourthPowersOfOwnGradients(TracksTheNorm):
    """A running size takes the own gradients' norm of fourth powers."""

    def measure(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return tf.add_n([tf.reduce_sum(gradient**4) for gradient in dense]) ** 0.25


@fault(
    "hyperparameter-differs",
    "slot",
    ("OwnRule/kernel/m", "OwnRule/bias/m"),
    like="deepspeedai/DeepSpeed#490",
    workload="linear",
)
@optimizer("Optimizer", "OwnRule")
class EstimatesAddedUp(ScaledByEstimate):
    """A factor that every replica makes of the summed gradients is summed as well."""

    def estimate(self, pairs):
        return all_reduce("sum", super().estimate(pairs))
