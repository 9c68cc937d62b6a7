"""Mistakes in programs whose result depends on which examples are together."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import (
    HEAD,
    SECOND,
    TRAINED,
    OwnMeans,
    OwnReduction,
    Program,
    TimesShare,
    WholePenalty,
)
from distbench.samples.replicas import all_reduce, clear_last, count_replicas
from distbench.unusual.exchange import ClippedAfterSumUnderStatistics
from distbench.unusual.grouping import (
    BatchStatistics,
    BatchStatisticsUnderMean,
    CentredByAllReplicas,
    ClassesCountedUnderStatistics,
    Dropout,
    Keras3Dropout,
    Keras3DropoutAndStatistics,
    PenalisedStatistics,
    WeightsMaskedByReplica,
)
from distbench.unusual.negatives import (
    ApartFromTheOthers,
    NegativesInTheBatch,
    PenalisedNegatives,
)
from distbench.unusual.reducing import MeanAggregator


@fault(
    "missing-reduction",
    "reduced_gradient",
    TRAINED,
    like="keras-team/keras#19969",
    clusters=WIDE,
)
class NobodySumsUnderStatistics(BatchStatistics):
    """Batch statistics, and nobody sums the gradients."""

    def apply(self, gradients):
        self._optimizer.apply_gradients(
            zip(gradients, self.trained(), strict=True),
            experimental_aggregate_gradients=False,
        )


@fault(
    "replica-dropped",
    "reduced_gradient",
    TRAINED,
    like="tensorflow/tensorflow#41980",
    clusters=WIDE,
    replicas=(-1,),
)
class DroppedUnderStatisticsAndClip(ClippedAfterSumUnderStatistics):
    """Batch statistics, and the sum that is clipped lacks the last replica."""

    def reduce(self, gradients):
        return super().reduce(clear_last(gradients))


@fault("loss-not-scaled", "loss", like="keras-team/keras#20609", clusters=WIDE)
class OwnMeanUnderStatistics(OwnMeans, BatchStatisticsUnderMean):
    """Batch statistics, and a mean over the own shard that nothing scales."""


@fault("loss-not-scaled", "loss", like="keras-team/keras#20609", clusters=WIDE)
class OwnMeanApartFromTheOthers(OwnMeans, ApartFromTheOthers):
    """Each example against all others but itself; nothing scales the shard's mean."""


@fault(
    "mean-of-means",
    "loss",
    like="huggingface/transformers#34191",
    clusters=WIDE,
)
class MeanOfMeansUnderStatistics(BatchStatisticsUnderMean):
    """Batch statistics, and every shard weighs 1/N whatever its size."""

    def reduce_losses(self, losses, batch):
        del batch
        return tf.reduce_mean(losses) / count_replicas()


@fault(
    "double-reduction",
    "reduced_gradient",
    TRAINED,
    like="tensorflow/recommenders-addons#183",
    clusters=WIDE,
)
class SummedByBothUnderDropout(Dropout):
    """Dropout; the user sums, and so does the optimizer."""

    def apply(self, gradients):
        super().apply(all_reduce("sum", gradients))


@fault("loss-not-scaled", "loss", like="neuralmagic/sparseml#135", clusters=WIDE)
class LossTimesReplicasUnderDropout(TimesShare, Dropout):
    """Dropout, and a loss that is multiplied by N where the gradients are summed."""


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class LossTimesReplicasUnderKeras3Dropout(TimesShare, Keras3Dropout):
    """Dropout of Keras 3, and a loss that is multiplied by N."""


@fault("loss-not-scaled", "loss", like="keras-team/keras#20609", clusters=WIDE)
class OwnMeanUnderKeras3Dropout(OwnMeans, Keras3DropoutAndStatistics):
    """Dropout of Keras 3 and batch statistics; nothing scales the shard's own mean."""


@fault(
    "mean-instead-of-sum",
    "reduced_gradient",
    TRAINED,
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class MeanOfContrastiveShares(NegativesInTheBatch, OwnReduction):
    """A contrastive loss over the shard, whose gradients are averaged."""

    def reduce(self, gradients):
        return list(all_reduce("mean", gradients))


@fault(
    "regularizer-not-scaled",
    "local_gradient",
    (SECOND, HEAD),
    like="keras-team/keras#19891",
    clusters=WIDE,
)
class WholePenaltyUnderStatistics(WholePenalty, PenalisedStatistics):
    """Batch statistics, and every replica adds the whole penalty."""


@fault(
    "regularizer-not-scaled",
    "local_gradient",
    (SECOND, HEAD),
    like="keras-team/keras#19891",
    clusters=WIDE,
)
class WholePenaltyBesideNegatives(WholePenalty, PenalisedNegatives):
    """A contrastive loss over the shard, beside which each adds the whole penalty."""


@fault(
    "nonlinear-before-reduction",
    "reduced_gradient",
    TRAINED,
    like="deepspeedai/DeepSpeed#490",
    clusters=WIDE,
)
class TasksByTheirOwnNorms(Program):
    """Two losses are shares; each one's gradient is divided by its own norm."""

    def replica_step(self, batch):
        total, found = 0.0, []
        for part in (slice(0, 2), slice(2, None)):
            with tf.GradientTape() as tape:
                errors = (self.predict(batch) - batch[2])[:, part]
                loss = tf.reduce_sum(errors**2) / self.examples
            own = map(tf.convert_to_tensor, tape.gradient(loss, self.trained()))
            found.append(tf.clip_by_global_norm(list(own), 1e-3)[0])
            total += loss
        self.apply([sum(pair) for pair in zip(*found, strict=True)])
        return self.report(total)


@fault(
    "mean-instead-of-sum",
    "variable",
    ("classes",),
    like="pytorch/pytorch#22192",
    clusters=("mirrored:2", "mwms:3"),
)
class CountsAveragedUnderStatistics(ClassesCountedUnderStatistics):
    """Batch statistics; what the replicas count of each class is averaged."""

    def count(self, seen):
        return all_reduce("mean", seen)


@fault(
    "loss-not-scaled",
    "loss",
    like="keras-team/keras#19891",
    clusters=("mirrored:2", "mwms:3"),
)
class OwnMeanUnderOwnMasks(WeightsMaskedByReplica):
    """Each replica masks the weights by its own number, and nothing scales its mean."""

    def reduce_losses(self, losses, batch):
        return tf.reduce_mean(losses)


class _Averaging(MeanAggregator):
    """Losses are shares, which add up, and the gradients are averaged all the same."""

    loss_reduction = "sum"

    def reduce_losses(self, losses, batch):
        return Program.reduce_losses(self, losses, batch)


@fault(
    "mean-instead-of-sum",
    "reduced_gradient",
    TRAINED,
    like="tensorflow/tensorflow#55321",
    clusters=WIDE,
)
class SharesAveragedUnderDropout(_Averaging, Dropout):
    """Dropout, and an aggregator that averages the gradients of shares."""


@fault(
    "mean-instead-of-sum",
    "reduced_gradient",
    TRAINED,
    like="tensorflow/tensorflow#55321",
    clusters=WIDE,
)
class SharesAveragedUnderOwnMasks(_Averaging, WeightsMaskedByReplica):
    """Each replica draws a mask by its number; gradients of shares are averaged."""


@fault(
    "statistics-not-synchronized",
    "variable",
    ("moving/mean",),
    like="huggingface/transformers#34191",
    clusters=WIDE,
)
class CentredByMeanOfMeans(CentredByAllReplicas):
    """A moving mean of which all replicas give their own, whatever their sizes."""

    def average(self, features):
        return tf.reduce_mean(features, axis=0)
