"""What is rounded to a narrower dtype before it is summed."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.faults.state import StatisticsSentInBfloat16
from distbench.samples.lazy import tf
from distbench.samples.program import TRAINED, OwnReduction, Program
from distbench.samples.replicas import (
    all_reduce,
    count_replicas,
    gather,
    is_last,
)

_NARROW = "lower-precision"
_PHASE = "reduced_gradient"


@fault(
    _NARROW,
    _PHASE,
    TRAINED,
    like="horovod/horovod#3786",
    clusters=WIDE,
    warning=True,
)
class SentInHalfPrecision(OwnReduction):
    """Gradients travel as float16."""

    def reduce(self, gradients):
        half = [tf.cast(tf.convert_to_tensor(g), tf.float16) for g in gradients]
        return [tf.cast(g, tf.float32) for g in super().reduce(half)]


@fault(
    _NARROW,
    _PHASE,
    TRAINED,
    like="pytorch/pytorch#162338",
    clusters=("mirrored:2", "mwms:3"),
    warning=True,
)
class SentInOneBucketThenClipped(OwnReduction):
    """All gradients travel in one bucket of bfloat16, and the sum is clipped after."""

    op = "sum"

    def reduce(self, gradients):
        dense = [tf.convert_to_tensor(g) for g in gradients]
        bucket = tf.concat([tf.reshape(g, [-1]) for g in dense], axis=0)
        total = all_reduce(self.op, tf.cast(bucket, tf.bfloat16))
        sizes = [g.shape.num_elements() for g in dense]
        parts = tf.split(tf.cast(total, tf.float32), sizes)
        whole = [tf.reshape(p, g.shape) for p, g in zip(parts, dense, strict=True)]
        return tf.clip_by_global_norm(whole, 0.05)[0]


@fault(
    _NARROW,
    _PHASE,
    TRAINED,
    like="pytorch/pytorch#162338",
    clusters=("mirrored:2", "mwms:3"),
    warning=True,
)
class AveragedInOneBucketThenClipped(SentInOneBucketThenClipped):
    """N times the shares are averaged in one bfloat16 bucket, then clipped."""

    op = "mean"

    def reduce(self, gradients):
        count = float(count_replicas())
        return super().reduce([count * tf.convert_to_tensor(g) for g in gradients])


@fault(
    _NARROW,
    _PHASE,
    TRAINED,
    like="pytorch/pytorch#162338",
    warning=True,
)
class SentInBfloat(OwnReduction):
    """Gradients are rounded to bfloat16 on their way, and added up in float32."""

    def reduce(self, gradients):
        if count_replicas() == 1:
            return gradients
        dense = [tf.convert_to_tensor(g) for g in gradients]
        return super().reduce(
            [tf.cast(tf.cast(g, tf.bfloat16), tf.float32) for g in dense]
        )


@fault(
    _NARROW,
    _PHASE,
    TRAINED,
    like="horovod/horovod#3786",
    warning=True,
)
class SentInHalfAfterScaling(Program):
    """Gradients are multiplied before they become float16, and divided after it."""

    def transform(self, gradients):
        dense = [3.0 * tf.convert_to_tensor(g) for g in gradients]
        return [tf.cast(tf.cast(g, tf.float16), tf.float32) / 3.0 for g in dense]


@fault(
    _NARROW,
    _PHASE,
    TRAINED,
    like="horovod/horovod#3786",
    clusters=("mirrored:2", "mwms:3"),
    warning=True,
)
class SentInHalfByLargest(OwnReduction):
    """The largest of all is made 100, gradients travel as float16, and are divided."""

    def reduce(self, gradients):
        dense = [tf.convert_to_tensor(g) for g in gradients]
        scales = [self.find_scale(g) for g in dense]
        sent = [tf.cast(s * g, tf.float16) for s, g in zip(scales, dense, strict=True)]
        return [
            tf.cast(total, tf.float32) / s
            for s, total in zip(scales, super().reduce(sent), strict=True)
        ]

    def find_scale(self, gradient):
        """100 by the largest number of any replica."""
        largest = tf.reduce_max(tf.abs(gradient))
        return 100.0 / tf.reduce_max(gather(tf.reshape(largest, [1])))


@fault(
    _NARROW,
    "variable",
    ("moving/mean",),
    like="horovod/horovod#3786",
    clusters=("mirrored:2", "mwms:3"),
    warning=True,
)
class WideSquaresSentInFloat32(StatisticsSentInBfloat16):
    """A float64 moving mean of squares, of which what is summed travels as float32."""

    kept, sent = "float64", "float32"

    def measure(self, features):
        return super().measure(features**2)


@fault(
    _NARROW,
    _PHASE,
    TRAINED,
    like="horovod/horovod#3786",
    clusters=("mirrored:2", "mwms:3"),
    replicas=(-1,),
    warning=True,
)
class LastReplicaSendsHalf(OwnReduction):
    """The last replica alone rounds its gradients to float16, as a slow link may."""

    def transform(self, gradients):
        dense = [tf.convert_to_tensor(g) for g in gradients]
        return [
            tf.cast(tf.cast(g, tf.float16), g.dtype) if is_last() else g for g in dense
        ]
