"""Mistakes in what is summed with what: a replica, a variable or an order is lost."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.optimizers import optimizer
from distbench.samples.program import (
    DENSE,
    FIRST,
    HEAD,
    SECOND,
    TABLE,
    TRAINED,
    OwnReduction,
)
from distbench.samples.replicas import (
    all_reduce,
    change_joined,
    clear_last,
    count_replicas,
    gather,
    is_last,
)


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
    "wrong-pairing",
    "reduced_gradient",
    (FIRST, SECOND),
    like="deepspeedai/DeepSpeed#2343",
    clusters=WIDE,
)
class CentredInOtherOrder(ZippedInOtherOrder):
    """What comes back in another order is centred before it is handed over."""

    def reduce(self, gradients):
        dense = [tf.convert_to_tensor(g) for g in super().reduce(gradients)]
        return [g - tf.reduce_mean(g, 0) if len(g.shape) > 1 else g for g in dense]


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
    "variable-not-reduced",
    "reduced_gradient",
    DENSE,
    like="NVIDIA/Megatron-LM#1446",
    clusters=WIDE,
)
class TableAloneAveraged(OwnReduction):
    """The table's gradient is averaged, and all others stay the replica's own."""

    def reduce(self, gradients):
        return [all_reduce("mean", gradients[0]), *gradients[1:]]


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
        return change_joined(
            dense, lambda flat: tf.roll(all_reduce("sum", flat), 1, axis=0)
        )


@fault(
    "wrong-pairing",
    "reduced_gradient",
    TRAINED,
    like="vllm-project/vllm-ascend#7887",
    clusters=WIDE,
)
class GatheredNeighboursSummed(OwnReduction):
    """Gathered flat gradients get the replicas as their last axis, not as the first."""

    def reduce(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return [tf.reshape(self.add_up(tf.reshape(g, [-1])), g.shape) for g in dense]

    def add_up(self, flat):
        by_replica = tf.reshape(gather(flat), [-1, count_replicas()])
        return tf.reduce_sum(by_replica, axis=1)


@fault(
    "wrong-pairing",
    "reduced_gradient",
    TRAINED,
    like="vllm-project/vllm-ascend#7887",
    clusters=WIDE,
)
class GatheredBufferNeighboursSummed(GatheredNeighboursSummed):
    """So does one gathered buffer of all gradients."""

    def reduce(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return change_joined(dense, self.add_up)


_packed_otherwise = fault(
    "wrong-pairing",
    "reduced_gradient",
    TRAINED,
    like="NVIDIA/Megatron-LM#2218",
    clusters=WIDE,
    replicas=(-1,),
)


@_packed_otherwise
class LastReplicaPacksOtherwise(OwnReduction):
    """One replica packs its gradients from last to first into what is summed."""

    def reduce(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        packed = self.pack(dense) if is_last() else dense
        flat = tf.concat([tf.reshape(g, [-1]) for g in packed], axis=0)
        return change_joined(dense, lambda _: all_reduce("sum", flat))

    def pack(self, dense):
        """Gradients in the order in which they are ready."""
        return dense[::-1]


@_packed_otherwise
class LastReplicaPacksBucketsBackwards(LastReplicaPacksOtherwise):
    """So it does in two buckets, and what is last in a bucket comes first."""

    def pack(self, dense):
        flat = [tf.reshape(gradient, [-1]) for gradient in dense]
        buckets = (tf.concat(flat[:2], axis=0), tf.concat(flat[2:], axis=0))
        return [bucket[::-1] for bucket in buckets]


@fault(
    "wrong-pairing",
    "reduced_gradient",
    ("hidden/gain",),
    like="NVIDIA/Megatron-LM#2218",
    clusters=("mirrored:2", "mwms:2"),
    workload="large",
)
@optimizer("SGD", 0.05)
class FoundByShape:
    """A sum is found again by its shape, which two variables have."""

    def _aggregate_gradients(self, grads_and_vars):
        pairs = [(tf.convert_to_tensor(g), v) for g, v in grads_and_vars]
        sums = {tuple(g.shape): all_reduce("sum", g) for g, _ in pairs}
        return [(sums[tuple(g.shape)], v) for g, v in pairs]
