"""Norms that are not those of the sum, or are reduced over the replicas once more."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import BUFFERS, TRAINED
from distbench.samples.replicas import all_reduce
from distbench.unusual.by_hand import (
    ClippedByMeanOfNorms,
    TrustRatioBehindMomentum,
    TrustRatioByHand,
)
from distbench.unusual.reducing import (
    DividedByNormOfShards,
    DividedByNormOfSum,
    SkippedByNormOfSum,
)

_AGAIN = "double-reduction"
_LIKE = "ByteDance-Seed/VeOmni#184"


@fault(_AGAIN, "reduced_gradient", TRAINED, like=_LIKE, clusters=WIDE)
class NormOfSumAddedUp(DividedByNormOfSum):
    """The squares of the norm of the sum are added up over the replicas."""

    def measure(self, own, total):
        return tf.sqrt(all_reduce("sum", super().measure(own, total) ** 2))


@fault(
    "replicas-diverged",
    "reduced_gradient",
    TRAINED,
    like="deepspeedai/DeepSpeed#490",
    clusters=("mirrored:2", "mwms:2"),
)
class SkippedByOwnNorm(SkippedByNormOfSum):
    """Each replica leaves a step out whose own gradient is too long."""

    longest = 0.85

    def measure(self, own, total):
        del total
        return tf.linalg.global_norm(own)


@fault(_AGAIN, "variable", TRAINED, like=_LIKE, clusters=WIDE)
class TrustRatioAddedUp(TrustRatioByHand):
    """A trust ratio takes the norms of steps that all replicas have for shards."""

    def measure(self, step):
        return tf.sqrt(all_reduce("sum", super().measure(step) ** 2))


@fault(_AGAIN, "reduced_gradient", TRAINED, like=_LIKE, clusters=WIDE)
class NormOfShardsAndWhole(DividedByNormOfShards):
    """The bias, which every replica has, is added up as the shards of the others."""

    def join(self, of_shard, of_all):
        return all_reduce("sum", of_shard + of_all)


@fault(
    "nonlinear-before-reduction",
    "variable",
    (*TRAINED, *BUFFERS),
    like="deepspeedai/DeepSpeed#490",
    clusters=WIDE,
)
class TrustRatioOfOwnNorms(TrustRatioBehindMomentum):
    """A momentum takes the sum times a trust ratio by the mean of the own norms."""

    def measure(self, own, total):
        del total
        return all_reduce("mean", tf.norm(own))


@fault(
    "slot-from-local-gradient",
    "variable",
    ("norms",),
    like="deepspeedai/DeepSpeed#490",
)
class ClippedByMeanOfOwnNorms(ClippedByMeanOfNorms):
    """A limit that all gradients follow is a mean of the replicas' own norms."""

    def measure(self, own, total):
        del total
        return all_reduce("mean", tf.linalg.global_norm(own))
