"""Mistakes around a loss scale in float32, and with steps that overflow."""

from __future__ import annotations

from functools import partial

from distbench.faults.fault import WIDE, fault
from distbench.samples.changing import Changing
from distbench.samples.lazy import keras2, keras3, legacy, tf
from distbench.samples.loss_scale import (
    Keras3Scaled,
    Scaled,
    ScaledByHand,
    find_finite,
    make_scale,
    spoil,
)
from distbench.samples.optimizers import keras3_optimizer, optimizer
from distbench.samples.program import (
    BUFFERS,
    TRAINED,
    ByHand,
    MomentumByHand,
    OwnReduction,
)
from distbench.samples.replicas import all_reduce, count_replicas, update
from distbench.unusual.loss_scale import Keras3DecayUnderScale

_LAST = slice(-1, None)
_overflow = partial(fault, "nonfinite", like="NVIDIA-NeMo/Megatron-Bridge#5591")


class _Keras2(Scaled):
    def make_inner(self):
        return keras2.SGD(0.05, momentum=0.9)


@fault(
    "scale-error",
    "reduced_gradient",
    TRAINED,
    like="deepspeedai/DeepSpeed#2695",
)
class Keras2ScaleNotUndone(_Keras2):
    """On a cluster nobody divides by the loss scale."""

    def unscale(self, gradients):
        return gradients if count_replicas() > 1 else super().unscale(gradients)


@fault(
    "scale-error",
    "reduced_gradient",
    TRAINED,
    like="deepspeedai/DeepSpeed#2695",
    clusters=WIDE,
)
class UnscaledTwice(Scaled):
    """On a cluster the gradients are divided by the loss scale twice."""

    def unscale(self, gradients):
        gradients = super().unscale(gradients)
        return super().unscale(gradients) if count_replicas() > 1 else gradients


@fault(
    "weight-decay-repeated",
    "reduced_gradient",
    TRAINED,
    like="tensorflow/addons#2683",
    clusters=WIDE,
)
class Keras3WholeDecayUnderScale(Keras3DecayUnderScale):
    """Each replica adds all of a decay to gradients that are still scaled."""

    def count_shares(self):
        return 1


@fault(
    "nonfinite",
    "slot",
    tuple(f"sgd/{name.replace('/', '_')}_0_momentum" for name in TRAINED),
    like="keras-team/keras#20541",
    clusters=("mirrored:2",),
)
class Keras3LastOverflows(Keras3Scaled):
    """Only the last replica overflows, and Keras 3 asks the first one."""

    spoilt = _LAST


@fault(
    "nonfinite",
    "slot",
    ("sgd/bias_0_momentum",),
    like="keras-team/keras#20541",
    clusters=("mirrored:2",),
    workload="linear",
)
@keras3_optimizer("LossScaleOptimizer", initial_scale=256.0)
class Keras3MomentumGoesOn:
    """One NaN of the last replica, and all step on by gradients that are finite."""

    def __init__(self, **options):
        super().__init__(keras3.SGD(0.1, momentum=0.9), **options)  # type: ignore[call-arg]  # of the base


@_overflow("reduced_gradient", TRAINED, replicas=(-1,))
class OverflowLeftOut(Scaled):
    """A replica whose gradients overflow gives zeros to the sum, and all go on."""

    spoilt = _LAST

    def apply(self, gradients):
        if count_replicas() > 1:
            finite = find_finite(gradients)
            gradients = [
                tf.where(finite, g, tf.zeros_like(g))
                for g in map(tf.convert_to_tensor, gradients)
            ]
        super().apply(gradients)


@_overflow("variable", TRAINED, replicas=(0,))
class SkipsAlone(ByHand):
    """A replica whose gradients overflow leaves its own copy as it is."""

    def data(self, step):
        return spoil(super().data(step), step, _LAST)

    def reduce_losses(self, losses, batch):
        return Scaled.scale * super().reduce_losses(losses, batch)

    def transform(self, gradients):
        return [tf.convert_to_tensor(g) / Scaled.scale for g in gradients]

    def apply(self, gradients):
        finite = find_finite(gradients)
        for gradient, variable in zip(gradients, self.trained(), strict=True):
            gradient = tf.convert_to_tensor(gradient)
            total = all_reduce("sum", tf.where(finite, gradient, 0.0 * variable))
            update(variable, self.step, total, finite)

    def step(self, copy, gradient, finite):
        """One copy's step, if its replica's gradients were finite."""
        copy.assign_sub(tf.where(finite, self.rate * gradient, 0.0 * copy))


@_overflow("variable", TRAINED, replicas=(0,))
class SkipsAloneByAveragedScale(SkipsAlone):
    """A replica skips alone, and all go on with the mean of what scale each chooses."""

    def build(self, strategy):
        super().build(strategy)
        self.chosen = make_scale(Scaled.scale, "MEAN")

    def variables(self):
        return [*super().variables(), self.chosen]

    def apply(self, gradients):
        super().apply(gradients)
        factor = tf.where(find_finite(gradients), 2.0, 0.5)
        self.chosen.assign(self.chosen * factor)


@_overflow("variable", TRAINED, replicas=(0,))
class SkipsAloneByGoodSteps(SkipsAlone):
    """A replica skips alone, counts good steps alone, and doubles the scale by that."""

    def build(self, strategy):
        super().build(strategy)
        self.chosen = make_scale(Scaled.scale, "ONLY_FIRST_REPLICA")
        self.good = tf.Variable(
            0,
            trainable=False,
            name="good",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def variables(self):
        return [*super().variables(), self.chosen, self.good]

    def apply(self, gradients):
        finite = find_finite(gradients)
        for gradient, variable in zip(gradients, self.trained(), strict=True):
            total = all_reduce("sum", tf.convert_to_tensor(gradient))
            update(variable, self.step, total, finite)
        self.good.assign(tf.where(finite, self.good + 1, 0))
        factor = tf.where(self.good > 1, 2.0, 1.0)
        self.chosen.assign(self.chosen * tf.where(finite, factor, 0.5))


class _LeavesOutOwn(Changing):
    """A replica hands on zeros where its own gradients are not finite."""

    def change(self, gradients):
        finite = find_finite(gradients)
        return [tf.where(finite, gradient, 0.0) for gradient in gradients]


@_overflow("reduced_gradient", ("kernel", "bias"), workload="linear", replicas=(-1,))
@optimizer("SGD", 0.1)
class OwnOverflowLeftOut(_LeavesOutOwn):
    """A replica hands on zeros where its own gradients are not finite; all are."""


@_overflow("reduced_gradient", ("kernel", "bias"), workload="linear", replicas=(-1,))
@optimizer("Adam", 0.01)
class OwnOverflowFollowedByMoments(_LeavesOutOwn):
    """A replica hands on zeros for its own that are not finite; moments go on."""


@_overflow("variable", (*BUFFERS, *TRAINED))
class OwnOverflowFollowedByOwnMomentum(MomentumByHand):
    """A replica sums zeros for its own that are not finite; momenta by hand go on."""

    def apply(self, gradients):
        finite = find_finite(gradients)
        super().apply([tf.where(finite, g, tf.zeros_like(g)) for g in gradients])


@_overflow("reduced_gradient", TRAINED, replicas=(-1,))
class OwnOverflowOfRowsLeftOut(OwnReduction):
    """A replica whose gradients, some sparse, are not finite sums zeros; all are."""

    def make_optimizer(self):
        return legacy.SGD(0.05)

    def reduce(self, gradients):
        finite = find_finite(gradients)
        return super().reduce([tf.where(finite, g, 0.0) for g in gradients])


@_overflow("reduced_gradient", TRAINED)
class AsksItselfAlone(ScaledByHand):
    """A scale of its own, and each replica leaves out what overflows of its share."""

    def ask(self, finite):
        return finite


@_overflow("reduced_gradient", TRAINED)
class AsksItselfForTheMeanOfScales(AsksItselfAlone):
    """Each replica leaves out what overflows of its share; scales are averaged."""

    def build(self, strategy):
        super().build(strategy)
        self.now = make_scale(self.scale, "MEAN")
