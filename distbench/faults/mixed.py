"""Mistakes with a loss scale."""

from __future__ import annotations

import numpy as np

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import legacy, tf
from distbench.samples.loss_scale import find_finite
from distbench.samples.mixed import (
    BIAS,
    KERNEL,
    MIXED,
    Decayed,
    LedByLoss,
    MixedProgram,
    Pulled,
    SkippedByHand,
    SummedByHand,
    clear_overflow,
    is_cluster,
)
from distbench.samples.program import TRAINED
from distbench.samples.replicas import all_reduce, count_replicas, is_last
from distbench.unusual.mixed import (
    HalfAveragedByHand,
    HalfWholeOverflows,
    MasterCopies,
    MeanBesideSumInBfloat16,
)


@fault(
    "scale-error",
    "reduced_gradient",
    MIXED,
    like="deepspeedai/DeepSpeed#2695",
    clusters=WIDE,
)
class ScaleNotUndone(MixedProgram):
    """On a cluster the gradients keep the loss scale."""

    def unscale(self, gradients):
        return gradients if is_cluster() else super().unscale(gradients)


@fault(
    "missing-reduction",
    "reduced_gradient",
    MIXED,
    like="keras-team/keras#19467",
    clusters=WIDE,
)
class NobodySumsUnderScale(MixedProgram):
    """Under a loss scale, and nobody sums."""

    def apply(self, gradients):
        self._optimizer.apply_gradients(
            zip(gradients, self.variables(), strict=True),
            experimental_aggregate_gradients=False,
        )


@fault("loss-not-scaled", "loss", like="neuralmagic/sparseml#135", clusters=WIDE)
class LossTimesReplicasUnderScale(MixedProgram):
    """Under a loss scale, and the loss is multiplied by N."""

    def compute_loss(self, batch):
        return super().compute_loss(batch) * count_replicas()


@fault(
    "double-reduction",
    "reduced_gradient",
    MIXED,
    like="tensorflow/recommenders-addons#183",
    clusters=WIDE,
)
class SummedByBothUnderScale(MixedProgram):
    """Under a loss scale the user sums, and so does the optimizer."""

    def apply(self, gradients):
        super().apply(list(all_reduce("sum", gradients)))


@fault(
    "nonfinite",
    "reduced_gradient",
    MIXED,
    like="NVIDIA-NeMo/Megatron-Bridge#5591",
)
class OneReplicaOverflows(MixedProgram):
    """The last replica scales its gradients beyond what float32 can hold."""

    def unscale(self, gradients):
        gradients = super().unscale(gradients)
        if is_last():
            return [g * 1e30 * 1e30 for g in gradients]
        return gradients


@fault(
    "nonfinite",
    "reduced_gradient",
    MIXED,
    like="NVIDIA-NeMo/Megatron-Bridge#5591",
    replicas=(-1,),
)
class HalfOverflowLeftOut(SkippedByHand):
    """A replica that overflows in float16 adds zeros to the sum, and all go on."""

    def make_addends(self, gradients):
        return clear_overflow(gradients)


@fault(
    "nonfinite",
    "reduced_gradient",
    (KERNEL, BIAS),
    like="NVIDIA-NeMo/Megatron-Bridge#5591",
    replicas=(-1,),
)
class HalfOverflowLeftOutBeside(SkippedByHand):
    """So it is with what one optimizer trains; another one trains on, in float32."""

    def make_optimizer(self):
        return [super(SkippedByHand, self).make_optimizer() for _ in range(2)]

    def make_addends(self, gradients):
        return self.make_update(gradients)

    def make_update(self, gradients):
        return [*clear_overflow(gradients[:2]), *gradients[2:]]

    def apply(self, gradients):
        pairs = list(zip(gradients, self.variables(), strict=True))
        for optimizer, own in zip(self._optimizer, (pairs[:2], pairs[2:]), strict=True):
            optimizer.apply_gradients(own, experimental_aggregate_gradients=False)


@fault(
    "nonfinite",
    "reduced_gradient",
    MIXED,
    like="NVIDIA-NeMo/Megatron-Bridge#5591",
    replicas=(0,),
)
class HalfShareSkippedAlone(Pulled):
    """A replica whose share alone overflows in float16 stays, and the other goes on."""

    def unscale(self, gradients):
        finite = find_finite(gradients)
        sums = super().unscale(clear_overflow(gradients))
        return [tf.where(finite, total, tf.zeros_like(total)) for total in sums]


@fault(
    "nonfinite",
    "reduced_gradient",
    MIXED,
    like="NVIDIA-NeMo/Megatron-Bridge#5591",
    replicas=(-1,),
)
class HalfWholeOverflowsAskedAlone(HalfWholeOverflows):
    """Where the whole batch overflows, and no share, nobody sees who asks itself."""

    def make_addends(self, gradients):
        return clear_overflow(gradients)

    def ask(self, finite):
        return True


@fault(
    "loss-not-scaled",
    "local_gradient",
    ("beside",),
    like="neuralmagic/sparseml#135",
)
class HalfOwnMeanBesideOverflow(HalfWholeOverflows):
    """Another net is trained in that step alone, by the mean over the own examples."""

    def build(self, strategy):
        super().build(strategy)
        self.beside = tf.Variable(tf.ones([4, 2]), name="beside")

    def variables(self):
        return [*super().variables(), self.beside]

    def make_optimizer(self):
        return [legacy.SGD(0.05), legacy.SGD(0.05)]

    def data(self, step):
        turn = np.full([self.examples, 1], step == 1, np.float32)
        return (*super().data(step), turn)

    def replica_step(self, batch):
        *batch, turn = batch
        with tf.GradientTape() as tape:
            second = tf.reduce_mean(tf.tanh(batch[0] @ self.beside) ** 2 * turn)
        (own,) = tape.gradient(second, [self.beside])
        loss = super().replica_step(batch)
        self._optimizer[1].apply_gradients([(own, self.beside)])
        return loss

    def apply(self, gradients):
        self._optimizer[0].apply_gradients(
            zip(gradients, self.trained(), strict=True),
            experimental_aggregate_gradients=False,
        )


@fault(
    "nonfinite",
    "reduced_gradient",
    (BIAS,),
    like="NVIDIA-NeMo/Megatron-Bridge#5591",
)
class HalfSumOverflowsUnasked(HalfWholeOverflows):
    """All shares are finite, so a sum in float16 that overflows is stepped along."""

    def make_addends(self, gradients):
        return [tf.cast(gradient, tf.float16) for gradient in gradients]

    def make_update(self, gradients):
        return [tf.cast(gradient, tf.float32) for gradient in gradients]


@fault(
    "clip-before-reduction",
    "reduced_gradient",
    MIXED,
    like="tensorflow/tensorflow#33929",
)
class ClipsInHalf(SummedByHand):
    """Layers in float16, and each replica clips the norm before its own sum."""

    def make_addends(self, gradients):
        return tf.clip_by_global_norm(gradients, 0.5 * self.scale)[0]


@fault(
    "mean-instead-of-sum",
    "variable",
    MIXED,
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class MeanInHalfLedByLoss(LedByLoss):
    """In float16, and an average by hand is stepped along at a rate of the loss."""

    def unscale(self, gradients):
        summed = all_reduce("mean", gradients)
        return [gradient / self.scale for gradient in summed]


@fault(
    "regularizer-not-scaled",
    "local_gradient",
    (KERNEL,),
    like="keras-team/keras#19891",
    clusters=WIDE,
)
class WholePenaltyInHalf(Decayed):
    """In float16 every replica has the whole penalty, less than rounding may take."""

    def count_penalty(self):
        return 1.0


@fault(
    "missing-reduction",
    "variable",
    (*(f"narrow{place}" for place in range(len(TRAINED))), *TRAINED),
    like="keras-team/keras#19467",
)
class MasterCopiesByOwnGradients(MasterCopies):
    """The copies in float32 take each replica's own gradients."""

    def reduce(self, gradients):
        return gradients


@fault(
    "missing-reduction",
    "variable",
    MIXED,
    like="keras-team/keras#19467",
    clusters=WIDE,
)
class HalfAveragedByNobody(HalfAveragedByHand):
    """In float16, and each replica steps along N times its own share by hand."""

    def average(self, gradients):
        return gradients


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class OwnMeanBesideSumInBfloat16(MeanBesideSumInBfloat16):
    """In bfloat16, and beside a sum stands a mean over the own examples."""

    def average(self, values):
        return tf.reduce_mean(values)
