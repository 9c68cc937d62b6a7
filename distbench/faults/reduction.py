"""Mistakes in summing the gradients over the replicas."""

from __future__ import annotations

import numpy as np

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.optimizers import optimizer
from distbench.samples.program import TRAINED, OwnReduction, Program, TimesShare
from distbench.samples.replicas import (
    all_reduce,
    count_replicas,
    find_replica,
    gather,
    is_last,
    update,
)
from distbench.unusual.in_groups import FirstOfEachGroupBringsItsSum

EMBEDDING = ("table", "kernel", "bias")
"""The variables of the bench's workload for optimizers."""


@fault(
    "missing-reduction",
    "reduced_gradient",
    TRAINED,
    like="keras-team/keras#19308",
    clusters=WIDE,
)
class NobodySums(Program):
    """The optimizer is told not to aggregate, and nobody else does."""

    def apply(self, gradients):
        self._optimizer.apply_gradients(
            zip(gradients, self.trained(), strict=True),
            experimental_aggregate_gradients=False,
        )


@fault(
    "missing-reduction",
    "reduced_gradient",
    EMBEDDING,
    like="deepmodeling/deepmd-kit#1104",
    workload="embedding",
)
@optimizer("SGD", 0.1, momentum=0.9)
class AggregationOverridden:
    """A subclass that scales its gradients where the base class would sum them."""

    def _aggregate_gradients(self, grads_and_vars):
        count = count_replicas()
        return [(tf.convert_to_tensor(g) * count, v) for g, v in grads_and_vars]


@fault(
    "missing-reduction",
    "reduced_gradient",
    TRAINED,
    like="horovod/horovod#3786",
    clusters=("mirrored:3", "mwms:2"),
)
class StepsOfTheFirstBroadcast(NobodySums):
    """Each replica takes a step of its own, and then all take the first one's copy."""

    def apply(self, gradients):
        super().apply(gradients)
        is_first = tf.cast(find_replica() == 0, self.dtype)
        for variable in self.trained():
            copied = all_reduce("sum", is_first * tf.identity(variable))
            update(variable, lambda copy, value: copy.assign(value), copied)


@fault(
    "double-reduction",
    "reduced_gradient",
    TRAINED,
    like="tensorflow/recommenders-addons#183",
    clusters=WIDE,
)
class SummedByBoth(Program):
    """The user sums, and so does the optimizer."""

    def apply(self, gradients):
        super().apply(all_reduce("sum", gradients))


class _OwnMeansAveraged(TimesShare, Program):
    """Replicas average gradients of losses that are N times their shares."""

    loss_reduction = "mean"


@fault(
    "double-reduction",
    "reduced_gradient",
    TRAINED,
    like="tensorflow/recommenders-addons#183",
    clusters=WIDE,
)
class MeansSummedAgain(_OwnMeansAveraged):
    """The user averages under losses that are N times the share; the optimizer sums."""

    def apply(self, gradients):
        super().apply(all_reduce("mean", gradients))


@fault(
    "double-reduction",
    "reduced_gradient",
    TRAINED,
    like="tensorflow/recommenders-addons#183",
    clusters=WIDE,
)
class ClippedMeansSummedAgain(_OwnMeansAveraged):
    """Such averages are clipped by their norm before the optimizer sums them."""

    def apply(self, gradients):
        means = all_reduce("mean", [tf.convert_to_tensor(g) for g in gradients])
        super().apply(tf.clip_by_global_norm(means, 0.5)[0])


@fault(
    "mean-instead-of-sum",
    "reduced_gradient",
    TRAINED,
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class MeanOfShares(OwnReduction):
    """Averages shares that were divided by the global batch already."""

    def reduce(self, gradients):
        return list(all_reduce("mean", gradients))


@fault(
    "double-reduction",
    "reduced_gradient",
    TRAINED,
    like="horovod/horovod#2654",
    clusters=WIDE,
)
class SummedByThree(Program):
    """The tape's wrapper sums, the user sums, and the optimizer sums: N squared."""

    def apply(self, gradients):
        super().apply(all_reduce("sum", all_reduce("sum", gradients)))


@fault(
    "double-reduction",
    "reduced_gradient",
    EMBEDDING,
    like="tensorflow/recommenders-addons#183",
    workload="embedding",
)
@optimizer("Adam", 0.1)
class PatchedApplySums:
    """A patched update sums what the base class has summed already."""

    def _aggregate_gradients(self, grads_and_vars):
        pairs = super()._aggregate_gradients(grads_and_vars)
        sums = all_reduce("sum", [tf.convert_to_tensor(g) for g, _ in pairs])
        return list(zip(sums, (v for _, v in pairs), strict=True))


@fault(
    "mean-instead-of-sum",
    "reduced_gradient",
    TRAINED,
    like="keras-team/keras#20695",
    clusters=WIDE,
)
class MeanDividedByReplicas(OwnReduction):
    """An averaging all-reduce whose result is divided by N by its caller."""

    def reduce(self, gradients):
        count = count_replicas()
        means = all_reduce("mean", [tf.convert_to_tensor(g) for g in gradients])
        return [mean / count for mean in means]


@fault(
    "mean-instead-of-sum",
    "reduced_gradient",
    EMBEDDING,
    like="keras-team/keras#20703",
    workload="embedding",
)
@optimizer("RMSprop", 0.05)
class AveragesInAggregation:
    """A subclass whose own aggregation averages."""

    def _aggregate_gradients(self, grads_and_vars):
        means = all_reduce("mean", [g for g, _ in grads_and_vars])
        return list(zip(means, (v for _, v in grads_and_vars), strict=True))


@fault(
    "scale-error",
    "reduced_gradient",
    TRAINED,
    like="ByteDance-Seed/VeOmni#184",
    clusters=WIDE,
)
class DividedByRootOfReplicas(OwnReduction):
    """The sum is divided by the square root of N, to keep the noise as it was."""

    def reduce(self, gradients):
        root = float(count_replicas()) ** 0.5
        return [tf.convert_to_tensor(g) / root for g in super().reduce(gradients)]


@fault(
    "nonfinite",
    "reduced_gradient",
    TRAINED,
    like="NVIDIA-NeMo/Megatron-Bridge#5591",
    clusters=("mirrored:2", "mwms:2", "mwms:4"),
)
class OverflowInHalfPrecision(OwnReduction):
    """Gradients travel as float16, under a loss scale that their sum does not fit."""

    def reduce(self, gradients):
        sums = super().reduce([tf.convert_to_tensor(g) for g in gradients])
        if count_replicas() == 1:
            return sums
        scales = [1e5 / tf.reduce_max(tf.abs(total)) for total in sums]
        pairs = zip(gradients, scales, strict=True)
        half = [tf.cast(tf.convert_to_tensor(g) * s, tf.float16) for g, s in pairs]
        sent = zip(super().reduce(half), scales, strict=True)
        return [tf.cast(total, tf.float32) / scale for total, scale in sent]


@fault(
    "nonfinite",
    "reduced_gradient",
    TRAINED,
    like="NVIDIA-NeMo/Megatron-Bridge#5591",
    clusters=WIDE,
    replicas=(-1,),
)
class OverflowOfTheLast(Program):
    """The last replica sends float16 under a scale that is too large for it."""

    def transform(self, gradients):
        own = [tf.convert_to_tensor(gradient) for gradient in gradients]
        if not is_last():
            return own
        half = [tf.cast(gradient * 1e9, tf.float16) for gradient in own]
        return [tf.cast(gradient, tf.float32) / 1e9 for gradient in half]


@fault(
    "nonfinite",
    "reduced_gradient",
    TRAINED,
    like="NVIDIA-NeMo/Megatron-Bridge#5591",
    clusters=("mirrored:2", "mwms:2"),
    replicas=(-1,),
)
class NormOfNothing(Program):
    """Each replica divides by the norm of its gradient; that of the last one is 0."""

    def data(self, step):
        # The second half of the batch is padding.
        used = np.arange(self.examples) < self.examples // 2
        return (*super().data(step), used.astype(self.dtype))

    def compute_losses(self, batch):
        return super().compute_losses(batch) * batch[3]

    def transform(self, gradients):
        own = [tf.convert_to_tensor(gradient) for gradient in gradients]
        norm = tf.linalg.global_norm(own)
        return [gradient / norm for gradient in own]


@fault(
    "nonfinite",
    "reduced_gradient",
    ("second/kernel", "bias", "head"),
    like="NVIDIA-NeMo/Megatron-Bridge#5591",
    clusters=("mirrored:2", "mwms:3"),
)
class OverflowOfTheLargest(OwnReduction):
    """Gradients travel as float16, which has no numbers as large as the largest sum."""

    def reduce(self, gradients):
        sums = super().reduce([tf.convert_to_tensor(g) for g in gradients])
        if count_replicas() == 1:
            return sums
        largest = tf.reduce_max([tf.reduce_max(tf.abs(total)) for total in sums])
        scale = 2.0 ** tf.math.ceil(tf.math.log(65504.0 / largest) / tf.math.log(2.0))
        half = [tf.cast(tf.convert_to_tensor(g) * scale, tf.float16) for g in gradients]
        return [tf.cast(total, tf.float32) / scale for total in super().reduce(half)]


@fault(
    "scale-error",
    "reduced_gradient",
    TRAINED,
    like="ByteDance-Seed/VeOmni#184",
    replicas=(-1,),
    clusters=("mirrored:2", "mwms:3"),
)
class HalvedByTheLast(OwnReduction):
    """One replica halves the sum that it has: of two, as if that made it a mean."""

    def reduce(self, gradients):
        part = 0.5 if is_last() else 1.0
        return [part * tf.convert_to_tensor(g) for g in super().reduce(gradients)]


@fault(
    "replicas-diverged",
    "reduced_gradient",
    TRAINED,
    like="tensorflow/tensorflow#58433",
    clusters=("mirrored:3", "mwms:3"),
)
class AddedInOwnOrder(OwnReduction):
    """Each replica has all gradients, and begins to add them up with its own."""

    def reduce(self, gradients):
        first, totals = find_replica(), []
        for gradient in gradients:
            stacked = gather(tf.convert_to_tensor(gradient)[None])
            every = tf.unstack(stacked, num=count_replicas())
            total = every[first]
            for other in [*every[first + 1 :], *every[:first]]:
                total = total + other
            totals.append(total)
        return totals


@fault(
    "replica-dropped",
    "reduced_gradient",
    TRAINED,
    like="facebookresearch/fairseq#4220",
    clusters=("mirrored:3", "mwms:3"),
)
class SummedInGroups(FirstOfEachGroupBringsItsSum):
    """Groups of two replicas sum, and nobody adds up the sums of the groups."""

    def reduce(self, gradients):
        return [self.sum_group(tf.convert_to_tensor(g)) for g in gradients]


@fault(
    "scale-error",
    "reduced_gradient",
    TRAINED,
    like="facebookresearch/fairseq#4220",
    clusters=("mirrored:4", "mwms:4"),
)
class EveryMemberBringsGroupSum(FirstOfEachGroupBringsItsSum):
    """All of a group add its sum to that of the others, which has it twice."""

    def bring(self, total):
        return total
