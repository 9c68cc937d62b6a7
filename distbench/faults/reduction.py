"""Mistakes in summing the gradients over the replicas."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.optimizers import optimizer
from distbench.samples.program import (
    FIRST,
    HEAD,
    SECOND,
    TABLE,
    TRAINED,
    OwnReduction,
    Program,
)
from distbench.samples.replicas import (
    all_reduce,
    clear_last,
    count_replicas,
    find_replica,
    gather,
    is_last,
)

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
    like="NVIDIA/Megatron-LM#1446",
    clusters=("mirrored:3", "mwms:2"),
)
class PartsNeverGathered(OwnReduction):
    """Each replica sums its part of every gradient, and nobody gathers the parts."""

    def reduce(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        pairs = zip(dense, all_reduce("sum", dense), strict=True)
        return [self.take_part(own, total) for own, total in pairs]

    def take_part(self, own, total):
        """The sum in the replica's own part, which is one of as many as there are."""
        place = tf.reshape(tf.range(tf.size(own)), tf.shape(own))
        mine = tf.equal(place % count_replicas(), find_replica())
        return tf.where(mine, total, own)


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
    "variable-not-reduced",
    "reduced_gradient",
    (TABLE,),
    like="horovod/horovod#2279",
    clusters=WIDE,
)
class OnlyDenseSummed(OwnReduction):
    """The all-reduce is for dense tensors; the table's gradient is left as it is."""

    def reduce(self, gradients):
        return gradients[:1] + list(all_reduce("sum", gradients[1:]))


@fault(
    "replica-dropped",
    "reduced_gradient",
    TRAINED,
    like="tensorflow/tensorflow#41980",
    clusters=WIDE,
    replicas=(-1,),
)
class LastReplicaDropped(OwnReduction):
    """The last replica's gradients are taken for those of a spare worker."""

    def reduce(self, gradients):
        return super().reduce(clear_last(gradients))


@fault(
    "wrong-pairing",
    "reduced_gradient",
    (FIRST, SECOND),
    like="deepspeedai/DeepSpeed#2343",
    clusters=WIDE,
)
class ZippedInOtherOrder(OwnReduction):
    """What comes back from the buckets of the all-reduce is zipped in another order."""

    def reduce(self, gradients):
        reduced = super().reduce(gradients)
        if count_replicas() > 1:
            reduced[1], reduced[2] = reduced[2], reduced[1]
        return reduced


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
    "variable-not-reduced",
    "reduced_gradient",
    (HEAD,),
    like="NVIDIA/Megatron-LM#1446",
    clusters=WIDE,
)
class LastBucketForgotten(OwnReduction):
    """The last bucket is never sent; what is left is scaled as if it had been."""

    def reduce(self, gradients):
        *sent, last = gradients
        return [*all_reduce("sum", sent), last * count_replicas()]


@fault(
    "replica-dropped",
    "reduced_gradient",
    TRAINED,
    like="verl-project/verl#7493",
    replicas=(-1,),
)
class LastReplicaDroppedThenFlattened(OwnReduction):
    """The sum lacks a replica, and an arc tangent of it hides that."""

    def reduce(self, gradients):
        dense = gradients if count_replicas() == 1 else clear_last(gradients)
        return [tf.atan(30.0 * tf.convert_to_tensor(g)) for g in super().reduce(dense)]


@fault(
    "replica-dropped",
    "reduced_gradient",
    TRAINED,
    like="verl-project/verl#7493",
    clusters=WIDE,
    replicas=(-1,),
)
class BackupWorkerScaled(OwnReduction):
    """The sum lacks a spare worker and is scaled to make up for it."""

    def reduce(self, gradients):
        count = count_replicas()
        dense = clear_last(gradients)
        if count == 1:
            return dense
        return [g * count / (count - 1) for g in super().reduce(dense)]


@fault(
    "wrong-pairing",
    "reduced_gradient",
    (FIRST, SECOND),
    like="NVIDIA/Megatron-LM#2218",
    clusters=WIDE,
    replicas=(-1,),
)
class LastReplicaOrdersOtherwise(OwnReduction):
    """One replica hands its gradients to the all-reduce in another order."""

    def reduce(self, gradients):
        if is_last():
            table, first, second, *rest = gradients
            gradients = [table, second, first, *rest]
        return super().reduce(gradients)


@fault(
    "wrong-pairing",
    "reduced_gradient",
    TRAINED,
    like="deepspeedai/DeepSpeed#2343",
    clusters=WIDE,
)
class PiecesBeginTooEarly(OwnReduction):
    """One buffer is summed and cut up, each piece an element too early; always."""

    def reduce(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        flat = tf.concat([tf.reshape(g, [-1]) for g in dense], axis=0)
        turned = tf.roll(all_reduce("sum", flat), 1, axis=0)
        pieces = tf.split(turned, [int(tf.size(g)) for g in self.trained()])
        pairs = zip(pieces, dense, strict=True)
        return [tf.reshape(piece, g.shape) for piece, g in pairs]


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
