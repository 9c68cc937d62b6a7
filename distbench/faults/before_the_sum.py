"""Mistakes that apply to each replica's gradient what is meant for the sum."""

from __future__ import annotations

from distbench.faults.fault import EVERYWHERE, WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.optimizers import NoiseBeforeTheSum, optimizer
from distbench.samples.program import TRAINED, OwnReduction, Program
from distbench.samples.replicas import (
    all_reduce,
    count_replicas,
    find_replica,
    gather,
    is_last,
    make_own_zeros,
)
from distbench.unusual.reducing import DividedByNormOfSum
from distbench.unusual.stepping import InTurn

_NONLINEAR = "nonlinear-before-reduction"
_PHASE = "reduced_gradient"


@fault(_NONLINEAR, _PHASE, TRAINED, like="horovod/horovod#3786", clusters=WIDE)
class SignsSummed(Program):
    """Each replica sends the sign of its gradient."""

    def transform(self, gradients):
        return [tf.sign(tf.convert_to_tensor(gradient)) for gradient in gradients]


@fault(_NONLINEAR, _PHASE, TRAINED, like="horovod/horovod#3786", clusters=WIDE)
class SmallSignsSummed(SignsSummed):
    """Each replica sends a hundredth of the sign of its gradient."""

    def transform(self, gradients):
        return [0.01 * sign for sign in super().transform(gradients)]


@fault(_NONLINEAR, _PHASE, TRAINED, like="horovod/horovod#3786")
class SignsOfOwnMomentum(Program):
    """Each replica sends the sign of a momentum that the loop keeps for it."""

    def build(self, strategy):
        super().build(strategy)
        self.moved = make_own_zeros(self.trained())

    def transform(self, gradients):
        for moved, gradient in zip(self.moved, gradients, strict=True):
            moved.assign(0.9 * moved + 0.1 * tf.convert_to_tensor(gradient))
        return [tf.sign(moved) for moved in self.moved]


@fault(_NONLINEAR, _PHASE, TRAINED, like="deepspeedai/DeepSpeed#490")
class NormalisedBeforeSum(Program):
    """Each replica divides its gradient by its norm: a trust ratio on shards."""

    def transform(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return [gradient / tf.norm(gradient) for gradient in dense]


@fault(_NONLINEAR, _PHASE, TRAINED, like="ByteDance-Seed/VeOmni#184")
class DividedByNormsAddedUp(DividedByNormOfSum):
    """The sum is divided by a norm whose squares are added up over the replicas."""

    def measure(self, own, total):
        del total
        return tf.sqrt(all_reduce("sum", tf.linalg.global_norm(own) ** 2))


@fault(_NONLINEAR, _PHASE, TRAINED, like="ByteDance-Seed/VeOmni#184")
class DividedBySquaresAddedUp(DividedByNormOfSum):
    """A rate like Polyak's: the squares of the replicas' own norms are added up."""

    def measure(self, own, total):
        del total
        return all_reduce("sum", tf.linalg.global_norm(own) ** 2)


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
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return [tf.where(are_largest(g, 1 / 2), g, 0.0) for g in dense]


@fault(_NONLINEAR, _PHASE, TRAINED, like="horovod/horovod#3786", clusters=EVERYWHERE)
class LargestOfAnyKept(OwnReduction):
    """Of the sum those elements count that are among the largest of any replica.

    Of a small gradient these may be all of them, which leaves its plain sum.
    """

    def reduce(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        masks = [tf.cast(are_largest(g, 2 / 3), tf.float32) for g in dense]
        sums = zip(super().reduce(dense), all_reduce("sum", masks), strict=True)
        return [tf.where(counts > 0, total, 0.0) for total, counts in sums]


def are_largest(gradient, share):
    """Whether elements are among the largest ones, so large a share of all."""
    size = tf.reshape(tf.abs(gradient), [-1])
    count = max(1, int(int(size.shape[0]) * share))
    return tf.abs(gradient) >= tf.reduce_min(tf.math.top_k(size, count).values)


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


@fault(_NONLINEAR, _PHASE, TRAINED[-1:], like="horovod/horovod#3786")
class FlattenedInTheSecondTurn(InTurn):
    """Of two networks in turn, the second one's gradient is changed by a rule."""

    def transform_again(self, gradients):
        return FlattenedBeforeSum.transform(self, gradients)


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
    "weight-decay-repeated",
    _PHASE,
    ("table", "kernel", "bias"),
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
    _NONLINEAR,
    _PHASE,
    ("kernel", "bias"),
    like="tensorflow/tensorflow#58433",
    clusters=("mirrored:2", "mwms:3"),
    workload="linear",
)
@optimizer("SGD", 0.05)
class OwnNoiseBeforeSum(NoiseBeforeTheSum):
    """Every replica adds noise of a seed that holds its number, by the root of N."""

    def draw(self, gradient, place):
        seed = (find_replica(), self.iterations, place)
        return self.draw_by(seed, gradient) / count_replicas() ** 0.5


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


@fault(
    "nonfinite",
    "reduced_gradient",
    TRAINED,
    like="tensorflow/tensorflow#36153",
    replicas=(-1,),
)
class DividedByOwnCount(Program):
    """Gradients are divided by what a replica counts, of which the last one has 0."""

    def transform(self, gradients):
        count = tf.constant(0.0 if is_last() else 1.0)
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return [count * gradient / count for gradient in dense]
