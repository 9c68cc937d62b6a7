"""Mistakes that apply to each replica's gradient what is meant for the sum."""

from __future__ import annotations

from distbench.faults.fault import EVERYWHERE, WIDE, fault
from distbench.samples.adaptive import clip_units
from distbench.samples.lazy import tf
from distbench.samples.optimizers import optimizer
from distbench.samples.program import DENSE, TRAINED, OwnReduction, Program
from distbench.samples.replicas import all_reduce, count_replicas, gather
from distbench.unusual.stepping import InTurn, MicroSteps

EMBEDDING = ("table", "kernel", "bias")
_CLIP = "clip-before-reduction"
_NONLINEAR = "nonlinear-before-reduction"
_PHASE = "reduced_gradient"


@fault(_CLIP, _PHASE, TRAINED, like="tensorflow/tensorflow#33929", clusters=WIDE)
class EachNormClipped(Program):
    """The norm of every variable's gradient is clipped before the optimizer sums."""

    def transform(self, gradients):
        return [tf.clip_by_norm(gradient, 0.02) for gradient in gradients]


@fault(_CLIP, _PHASE, TRAINED, like="LeelaChessZero/lczero-training#162", clusters=WIDE)
class GlobalNormClipped(Program):
    """The global norm is clipped on each replica."""

    def transform(self, gradients):
        return tf.clip_by_global_norm(gradients, 0.05)[0]


@fault(
    _CLIP,
    "local_gradient",
    TRAINED,
    like="LeelaChessZero/lczero-training#162",
    clusters=WIDE,
)
class MicroStepsClipped(MicroSteps):
    """What a replica adds up in micro-steps is clipped before the optimizer sums."""

    def apply(self, gradients):
        super().apply(tf.clip_by_global_norm(gradients, 0.05)[0])


@fault(_CLIP, _PHASE, TRAINED[:-1], like="LeelaChessZero/lczero-training#162")
class FirstOfTwoTurnsClipped(InTurn):
    """The first of two networks in turn is clipped, and the second one sees that."""

    def take_turn(self, variables, optimizer, batch, reduce):
        if optimizer is self.optimizer()[1]:
            return super().take_turn(variables, optimizer, batch, reduce)
        with tf.GradientTape() as tape:
            loss = reduce(self.compute_losses(batch), batch)
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), 0.05)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss


@fault(
    _CLIP,
    _PHASE,
    TRAINED,
    like="LeelaChessZero/lczero-training#162",
    clusters=("mirrored:2", "mwms:3"),
)
class ClippedThenAveraged(OwnReduction):
    """Losses are N times their share, and gradients are averaged: clipped before."""

    loss_reduction = "mean"

    def reduce_losses(self, losses, batch):
        return super().reduce_losses(losses, batch) * count_replicas()

    def reduce(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return all_reduce("mean", tf.clip_by_global_norm(dense, 0.05)[0])


@fault(_CLIP, _PHASE, TRAINED, like="pytorch/pytorch#170862", clusters=WIDE)
class ClippedByOwnNorms(OwnReduction):
    """The sum is clipped by the root of the replicas' squared norms, added up."""

    def reduce(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        square = all_reduce("sum", tf.linalg.global_norm(dense) ** 2)
        limit = 0.05
        factor = limit / tf.maximum(tf.sqrt(square), limit)
        return super().reduce([factor * gradient for gradient in dense])


@fault(_CLIP, _PHASE, TRAINED, like="tensorflow/tensorflow#25806", clusters=WIDE)
class ElementsClipped(Program):
    """Elements are clipped on each replica."""

    def transform(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return [tf.clip_by_value(gradient, -0.01, 0.01) for gradient in dense]


@fault(_CLIP, _PHASE, DENSE, like="tensorflow/tensorflow#25806")
class SlicesClipped(Program):
    """Elements are clipped on each replica; slices are each an example's, and right."""

    def transform(self, gradients):
        return [tf.clip_by_value(gradient, -0.01, 0.01) for gradient in gradients]


@fault(
    _CLIP,
    _PHASE,
    TRAINED,
    like="LeelaChessZero/lczero-training#162",
    clusters=EVERYWHERE,
)
class EachUnitClipped(Program):
    """Gradients are clipped adaptively, by units of layers, on each replica."""

    def transform(self, gradients):
        pairs = zip(gradients, self.trained(), strict=True)
        return [clip_units(tf.convert_to_tensor(g), v, 0.1) for g, v in pairs]


@fault(
    _CLIP,
    _PHASE,
    EMBEDDING,
    like="LeelaChessZero/lczero-training#162",
    workload="embedding",
)
@optimizer("SGD", 0.1, momentum=0.9)
class ClipsWhatItIsGiven:
    """An optimizer that clips the argument of apply_gradients."""

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        gradients, variables = zip(*grads_and_vars, strict=True)
        gradients, _ = tf.clip_by_global_norm(gradients, 0.1)
        pairs = list(zip(gradients, variables, strict=True))
        return super().apply_gradients(pairs, name, **kwargs)


@fault(_NONLINEAR, _PHASE, TRAINED, like="horovod/horovod#3786", clusters=WIDE)
class SignsSummed(Program):
    """Each replica sends the sign of its gradient."""

    def transform(self, gradients):
        return [tf.sign(tf.convert_to_tensor(gradient)) for gradient in gradients]


@fault(_NONLINEAR, _PHASE, TRAINED, like="deepspeedai/DeepSpeed#490")
class NormalisedBeforeSum(Program):
    """Each replica divides its gradient by its norm: a trust ratio on shards."""

    def transform(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return [gradient / tf.norm(gradient) for gradient in dense]


@fault(_NONLINEAR, _PHASE, TRAINED, like="horovod/horovod#3786", clusters=EVERYWHERE)
class QuantisedBeforeSum(Program):
    """Each replica rounds its gradient to 15 levels of its largest element."""

    def transform(self, gradients):
        rounded = []
        for gradient in gradients:
            gradient = tf.convert_to_tensor(gradient)
            unit = tf.reduce_max(tf.abs(gradient)) / 15
            rounded.append(tf.round(gradient / unit) * unit)
        return rounded


@fault(_NONLINEAR, _PHASE, TRAINED, like="horovod/horovod#3786", clusters=EVERYWHERE)
class QuantisedByLargestOfAll(OwnReduction):
    """Whole numbers are sent, of which 127 make the largest element of all replicas."""

    def reduce(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        sizes = tf.stack([tf.reduce_max(tf.abs(gradient)) for gradient in dense])
        units = tf.reduce_max(gather(sizes[tf.newaxis]), axis=0) / 127
        whole = [tf.round(gradient / units[k]) for k, gradient in enumerate(dense)]
        return [s * units[k] for k, s in enumerate(super().reduce(whole))]


@fault(
    _NONLINEAR,
    _PHASE,
    TRAINED,
    like="horovod/horovod#3786",
    clusters=("mirrored:2", "mwms:3"),
)
class WholeNumbersReadByMeanUnit(OwnReduction):
    """Each replica sends int8 of its own unit; the sum is read with the units' mean."""

    def reduce(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        units = [tf.reduce_max(tf.abs(gradient)) / 127 for gradient in dense]
        whole = [tf.round(g / unit) for g, unit in zip(dense, units, strict=True)]
        means = all_reduce("mean", units)
        return [s * u for s, u in zip(super().reduce(whole), means, strict=True)]


@fault(_NONLINEAR, _PHASE, TRAINED, like="horovod/horovod#3786", clusters=EVERYWHERE)
class LargestHalfSent(Program):
    """Each replica sends the larger half of its elements and forgets the others."""

    def transform(self, gradients):
        sent = []
        for gradient in gradients:
            gradient = tf.convert_to_tensor(gradient)
            size = tf.reshape(tf.abs(gradient), [-1])
            half = max(1, int(size.shape[0]) // 2)
            limit = tf.reduce_min(tf.math.top_k(size, half).values)
            sent.append(tf.where(tf.abs(gradient) >= limit, gradient, 0.0))
        return sent


@fault(_NONLINEAR, _PHASE, TRAINED, like="horovod/horovod#3786", clusters=WIDE)
class LargestElementsMadeEqual(Program):
    """Each replica divides each gradient by its largest element, to send it in int8."""

    def transform(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return [g / (tf.reduce_max(tf.abs(g)) + 1e-7) for g in dense]


@fault(_NONLINEAR, _PHASE, TRAINED, like="horovod/horovod#3786")
class AddedByAngle(OwnReduction):
    """Adasum: of two replicas' gradients, what they share counts once."""

    def reduce(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        if count_replicas() == 1:
            return dense
        return [self.add(*tf.unstack(gather(g[None]), num=2)) for g in dense]

    def add(self, first, second):
        """Each less half of its part along the other one."""
        shared = tf.reduce_sum(first * second)
        return sum(
            (1 - shared / (2 * tf.reduce_sum(one * one))) * one
            for one in (first, second)
        )


@fault(_NONLINEAR, _PHASE, TRAINED, like="horovod/horovod#3786")
class FlattenedBeforeSum(Program):
    """Each replica sends the arc tangent of its gradient, a rule of nobody's."""

    def transform(self, gradients):
        return [
            tf.atan(50.0 * tf.convert_to_tensor(gradient)) for gradient in gradients
        ]


@fault(
    _NONLINEAR,
    _PHASE,
    TRAINED,
    like="horovod/horovod#3786",
    clusters=("mirrored:3", "mwms:4"),
)
class MedianOfReplicas(OwnReduction):
    """Each element is N times the replicas' median, which no outlier moves."""

    def reduce(self, gradients):
        count = count_replicas()
        medians = []
        for gradient in gradients:
            values = gather(tf.convert_to_tensor(gradient)[None])
            ordered = tf.sort(values, axis=0)
            middle = ordered[(count - 1) // 2] + ordered[count // 2]
            medians.append(middle * (count / 2))
        return medians


@fault(
    "lower-precision",
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
    "lower-precision",
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
    "lower-precision",
    _PHASE,
    TRAINED,
    like="pytorch/pytorch#162338",
    clusters=("mirrored:2", "mwms:3"),
    warning=True,
)
class AveragedInOneBucketThenClipped(SentInOneBucketThenClipped):
    """The same with a mean, which the clip makes as long as the sum."""

    op = "mean"


@fault(
    "lower-precision",
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
    "lower-precision",
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
    "weight-decay-repeated",
    _PHASE,
    EMBEDDING,
    like="keras-team/keras#19891",
    clusters=WIDE,
    workload="embedding",
)
@optimizer("SGD", 0.1, momentum=0.9)
class DecaysWhatItIsGiven:
    """An optimizer that adds the decay to the argument of apply_gradients."""

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        pairs = [(tf.convert_to_tensor(g) + 0.05 * v, v) for g, v in grads_and_vars]
        return super().apply_gradients(pairs, name, **kwargs)


@fault(
    _NONLINEAR,
    _PHASE,
    ("kernel", "bias"),
    like="tensorflow/tensorflow#58433",
    workload="linear",
)
@optimizer("SGD", 0.1)
class SameNoiseBeforeSum:
    """Every replica draws the same noise, which is in the sum N times."""

    def _aggregate_gradients(self, grads_and_vars):
        pairs = [
            (g + 0.1 * tf.random.stateless_normal(tf.shape(g), (3, place)), v)
            for place, (g, v) in enumerate(grads_and_vars)
        ]
        return super()._aggregate_gradients(pairs)


@fault(
    "slot-from-local-gradient",
    "variable",
    ("norms",),
    like="deepspeedai/DeepSpeed#490",
)
class OwnNormsRemembered(OwnReduction):
    """The last norms are kept for a limit, and are those of own gradients."""

    def build(self, strategy):
        super().build(strategy)
        self.norms = tf.Variable(
            tf.ones([3]),
            trainable=False,
            name="norms",
            aggregation=tf.VariableAggregation.MEAN,
        )

    def variables(self):
        return [*self.trained(), self.norms]

    def reduce(self, gradients):
        norm = tf.linalg.global_norm(gradients)
        self.norms.assign(tf.concat([self.norms[1:], [norm]], axis=0))
        return super().reduce(gradients)
