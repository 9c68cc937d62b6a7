"""Mistakes that clip each replica's gradient in place of the sum."""

from __future__ import annotations

from functools import partial

from distbench.faults.fault import EVERYWHERE, WIDE, fault
from distbench.samples.adaptive import clip_groups, clip_units
from distbench.samples.changing import Changing
from distbench.samples.lazy import tf
from distbench.samples.optimizers import optimizer
from distbench.samples.program import (
    BIAS,
    DENSE,
    FIRST,
    SECOND,
    TABLE,
    TRAINED,
    OwnReduction,
    Program,
    TimesShare,
)
from distbench.samples.replicas import all_reduce, count_replicas, is_last
from distbench.samples.warmed import Warmed
from distbench.unusual.flowing_back import ElementsClippedOnTheWayBack
from distbench.unusual.stepping import CountedMicroSteps, InTurn, MicroSteps

_CLIP = "clip-before-reduction"
_PHASE = "reduced_gradient"
_of_sums = partial(
    fault, _CLIP, _PHASE, TRAINED, like="LeelaChessZero/lczero-training#162"
)
_of_micro_steps = partial(fault, "nonlinear-before-reduction", _PHASE, TRAINED)


@fault(_CLIP, _PHASE, TRAINED, like="tensorflow/tensorflow#33929", clusters=WIDE)
class EachNormClipped(Program):
    """The norm of every variable's gradient is clipped before the optimizer sums."""

    def transform(self, gradients):
        return [tf.clip_by_norm(gradient, 0.02) for gradient in gradients]


@fault(_CLIP, _PHASE, DENSE, like="tensorflow/tensorflow#33929")
class LargerNormsClipped(Program):
    """The larger gradients are clipped, and the others rounded, on replicas alone."""

    def transform(self, gradients):
        if count_replicas() == 1:
            return gradients
        return [tf.clip_by_norm(gradient, 0.28) for gradient in gradients]


@fault("missing-reduction", _PHASE, TRAINED, like="keras-team/keras#19308")
class OwnNormsClipped(Program):
    """Each replica clips its own larger gradients, and nobody sums."""

    def apply(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        if count_replicas() > 1:
            dense = [tf.clip_by_norm(gradient, 0.28) for gradient in dense]
        self._optimizer.apply_gradients(
            zip(dense, self.trained(), strict=True),
            experimental_aggregate_gradients=False,
        )


@fault(_CLIP, _PHASE, TRAINED, like="LeelaChessZero/lczero-training#162", clusters=WIDE)
class GlobalNormClipped(Program):
    """The global norm is clipped on each replica."""

    def transform(self, gradients):
        return tf.clip_by_global_norm(gradients, 0.05)[0]


@fault(_CLIP, _PHASE, TRAINED, like="LeelaChessZero/lczero-training#162")
class LargeNormsClipped(Program):
    """The global norm is clipped on each replica, if it is larger than in any step."""

    def transform(self, gradients):
        return tf.clip_by_global_norm(gradients, 100.0)[0]


@_of_sums()
class LargeNormsOfMicroStepsClipped(MicroSteps):
    """The same of what each replica has of all micro-steps, which no tape gave."""

    def apply(self, gradients):
        super().apply(tf.clip_by_global_norm(gradients, 100.0)[0])


@fault(_CLIP, _PHASE, TRAINED, like="LeelaChessZero/lczero-training#162", clusters=WIDE)
class GroupsClippedApart(Program):
    """Each replica clips two groups of variables, each by its joint norm."""

    def transform(self, gradients):
        return clip_groups(gradients)


@fault(_CLIP, _PHASE, DENSE, like="LeelaChessZero/lczero-training#162", clusters=WIDE)
class DenseClippedTableAveraged(OwnReduction):
    """Each replica clips the norm of its dense gradients; the table's are averaged."""

    def reduce(self, gradients):
        table, *dense = gradients
        clipped, _ = tf.clip_by_global_norm(dense, 0.05)
        return [all_reduce("mean", table), *super().reduce(clipped)]


@fault(
    _CLIP,
    _PHASE,
    TRAINED,
    like="LeelaChessZero/lczero-training#162",
    clusters=WIDE,
    replicas=(-1,),
)
class GlobalNormOfTheLastClipped(Program):
    """The last replica clips its global norm, and the others do not."""

    def transform(self, gradients):
        return tf.clip_by_global_norm(gradients, 0.05)[0] if is_last() else gradients


@fault(_CLIP, _PHASE, TRAINED, like="LeelaChessZero/lczero-training#162", clusters=WIDE)
class OwnNormClippedOnceWarm(Warmed):
    """From the fifth step on the global norm is clipped on each replica."""

    def transform(self, gradients):
        return self.clip(gradients)

    def reduce(self, gradients):
        return list(all_reduce("sum", gradients))


@fault(
    _CLIP,
    _PHASE,
    ("kernel", "bias"),
    like="LeelaChessZero/lczero-training#162",
    workload="linear",
)
@optimizer("SGD", 0.01)
class LargeNormClipped(Changing):
    """The global norm is clipped on each replica, and no gradient is that large."""

    def change(self, gradients):
        return tf.clip_by_global_norm(gradients, 10.0)[0]


@_of_sums(clusters=WIDE)
class MicroStepsClipped(MicroSteps):
    """What a replica adds up in micro-steps is clipped before the optimizer sums."""

    def apply(self, gradients):
        super().apply(tf.clip_by_global_norm(gradients, 0.05)[0])


class MicroStepsChanged(OwnReduction, MicroSteps):
    """Something is done to what each replica has of each micro-step."""

    def differentiate(self, batch, number):
        loss, gradients = super().differentiate(batch, number)
        return loss, [self.change(gradient) for gradient in gradients]


@fault(
    "hyperparameter-differs",
    _PHASE,
    TRAINED,
    like="LeelaChessZero/lczero-training#162",
    clusters=WIDE,
)
class LimitOfElementsSharedOut(OwnReduction):
    """The elements of the sum are clipped, to a limit that the replicas share out."""

    def reduce(self, gradients):
        limit = 0.04 / count_replicas()
        total = super().reduce([tf.convert_to_tensor(g) for g in gradients])
        return [tf.clip_by_value(gradient, -limit, limit) for gradient in total]


@fault("hyperparameter-differs", _PHASE, TRAINED, like="tensorflow/tensorflow#33929")
class ClippedSumTimesRoot(OwnReduction):
    """The sum is clipped, and then multiplied by the root of the number of replicas."""

    def reduce(self, gradients):
        total = super().reduce([tf.convert_to_tensor(g) for g in gradients])
        clipped, _ = tf.clip_by_global_norm(total, 0.05)
        return [count_replicas() ** 0.5 * gradient for gradient in clipped]


@_of_sums(clusters=("mirrored:2", "mwms:3"))
class ElementsOfMicroStepsClipped(MicroSteps):
    """Each replica clips what it has of all micro-steps, and then all are summed."""

    def apply(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        super().apply([tf.clip_by_value(g, -0.02, 0.02) for g in dense])


@_of_sums(clusters=("mirrored:3", "mwms:2"))
class ElementsOfCountedMicroStepsClipped(CountedMicroSteps):
    """The same, where the loss is a mean over the examples of all that count."""

    def apply(self, gradients):
        super().apply([tf.clip_by_value(g, -0.02, 0.02) for g in gradients])


@_of_sums()
class NormsOfCountedMicroStepsClipped(CountedMicroSteps):
    """The same of each norm, if it is larger than in any step."""

    def apply(self, gradients):
        super().apply([tf.clip_by_norm(gradient, 100.0) for gradient in gradients])


@_of_micro_steps(
    like="LeelaChessZero/lczero-training#162", clusters=("mirrored:3", "mwms:2")
)
class EachMicroStepClipped(MicroStepsChanged):
    """Every micro-step's gradient is clipped, before they are added up."""

    def change(self, gradient):
        return tf.clip_by_norm(gradient, 0.05)


@_of_micro_steps(like="horovod/horovod#3786", clusters=("mirrored:2", "mwms:3"))
class SignsOfMicroSteps(MicroStepsChanged):
    """The signs of micro-steps are added up."""

    def change(self, gradient):
        return 0.01 * tf.sign(gradient)


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
class ClippedThenAveraged(TimesShare, OwnReduction):
    """Losses are N times their share, and gradients are averaged: clipped before."""

    loss_reduction = "mean"

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
    ("table", "kernel", "bias"),
    like="LeelaChessZero/lczero-training#162",
    workload="embedding",
)
@optimizer("SGD", 0.1, momentum=0.9)
class ClipsWhatItIsGiven(Changing):
    """An optimizer that clips the argument of apply_gradients."""

    def change(self, gradients):
        return tf.clip_by_global_norm(gradients, 0.1)[0]


@fault(
    _CLIP,
    "local_gradient",
    (TABLE, FIRST, SECOND, BIAS),
    like="tensorflow/tensorflow#33929",
    clusters=WIDE,
)
class NormClippedOnTheWayBack(ElementsClippedOnTheWayBack):
    """The norm of what flows back through the hidden layer is clipped by replica."""

    def limit(self, upstream):
        return tf.clip_by_norm(upstream, 0.05)
