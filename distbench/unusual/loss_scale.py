"""Correct programs with a loss scale that has to skip a step."""

from __future__ import annotations

from distbench.samples.changing import Changing
from distbench.samples.lazy import keras2, keras3, legacy, tf
from distbench.samples.loss_scale import (
    OVERFLOWING,
    Keras3Scaled,
    Scaled,
    ScaledByHand,
    find_finite,
)
from distbench.samples.optimizers import optimizer
from distbench.samples.program import ByHand, OwnReduction, TimesShare
from distbench.samples.replicas import all_reduce, count_replicas, update
from distbench.unusual.program import unusual


@unusual()
class LastOverflows(Scaled):
    """An example of the last replica overflows: all of them skip the step."""

    spoilt = slice(-1, None)


@unusual()
class AllOverflow(Scaled):
    """Every replica overflows, and the next step starts from half the scale."""

    spoilt = slice(None)


@unusual()
class Keras2LastOverflows(LastOverflows):
    """An example of the last replica overflows under the new base class."""

    def make_inner(self):
        return keras2.SGD(0.05, momentum=0.9)


@unusual()
class ScaleOfItsOwn(ScaledByHand):
    """Replicas agree on a scale that the program keeps itself; nothing overflows."""


@unusual()
class WholeOverflowsAndDecays(ScaledByHand):
    """Two examples overflow together on one device, where a decay by hand goes on."""

    def data(self, step):
        batch = super().data(step)
        if step == 1:
            batch[2][2] = OVERFLOWING / 14
            for part in batch:
                part[-1] = part[2]
        return batch

    def make_optimizer(self):
        return None

    def apply(self, gradients):
        for variable, gradient in zip(self.trained(), gradients, strict=True):
            update(variable, self.step, all_reduce("sum", gradient))

    def step(self, copy, gradient):
        """One copy's step."""
        copy.assign_sub(0.05 * gradient + 0.01 * copy)


@unusual()
class FixedScale(Scaled):
    """The scale never changes."""

    dynamic = False


@unusual()
class Keras3AllOverflow(Keras3Scaled):
    """Every replica overflows: each finds it by itself."""

    spoilt = slice(None)


@unusual()
class Keras3FixedScale(Keras3Scaled):
    """The scale is an option of the optimizer, and never changes."""

    def make_optimizer(self):
        optimizer = keras3.SGD(0.05, momentum=0.9, loss_scale_factor=self.scale)
        optimizer.build(self.trained())
        return optimizer

    def unscale(self, gradients):
        # Keras 3.15 divides by the factor what must be a tensor.
        return [tf.convert_to_tensor(gradient) for gradient in gradients]


@unusual()
class Keras3DecayUnderScale(Keras3FixedScale):
    """Each replica adds its N-th of a decay to gradients that are still scaled."""

    decay = 100.0

    def unscale(self, gradients):
        share = self.decay / self.count_shares()
        pairs = zip(super().unscale(gradients), self.trained(), strict=True)
        return [gradient + share * variable for gradient, variable in pairs]

    def count_shares(self):
        return count_replicas()


class LeavesOutSum(Changing):
    """Zeros are applied where the sum is not finite."""

    sums_first = True

    def change(self, gradients):
        finite = find_finite(gradients)
        return [tf.where(finite, gradient, 0.0) for gradient in gradients]


@unusual(workload="linear")
@optimizer("SGD", 0.1)
class OverflowOfSumLeftOut(LeavesOutSum):
    """Zeros are applied where the sum is not finite; it always is."""


@unusual(workload="linear")
@optimizer("Adam", 0.01)
class OverflowOfSumFollowedByMoments(LeavesOutSum):
    """Zeros take the place of a sum that is not finite, and moments go on."""


@unusual(workload="linear")
@optimizer("SGD", 0.1)
class ElementsOfSumLeftOut(Changing):
    """Each element of the sum that is not finite is left out; the others count."""

    sums_first = True

    def change(self, gradients):
        return [tf.where(tf.math.is_finite(g), g, 0.0) for g in gradients]


@unusual()
class OverflowOfMeanLeftOut(TimesShare, ByHand):
    """N times the shares are averaged by hand; all is left as it is if that is odd."""

    loss_reduction = "mean"

    def apply(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        means = all_reduce("mean", dense)
        finite = find_finite(means)
        for variable, mean in zip(self.trained(), means, strict=True):
            self.update(variable, tf.where(finite, mean, 0.0))


@unusual()
class OverflowOfRowsLeftOut(OwnReduction):
    """Zeros are applied where a sum, some of it sparse, is not finite; it always is."""

    def make_optimizer(self):
        return legacy.SGD(0.05)

    def reduce(self, gradients):
        sums = super().reduce(gradients)
        finite = find_finite(sums)
        return [tf.where(finite, total, 0.0) for total in sums]


@unusual()
class OverflowWithoutRowsLeftOut(OverflowOfRowsLeftOut):
    """In the second step a lone example leaves the last replica without any row."""

    def data(self, step):
        batch = super().data(step)
        return tuple(part[:1] for part in batch) if step == 1 else batch
