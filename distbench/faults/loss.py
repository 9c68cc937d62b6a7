"""Mistakes in scaling the loss and in telling it."""

from __future__ import annotations

import numpy as np

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import (
    TRAINED,
    OwnMeans,
    OwnReduction,
    PenalisedProgram,
    Program,
    TimesShare,
)
from distbench.samples.replicas import all_reduce, count_replicas, find_replica
from distbench.unusual.local_state import CarriesItsOwnState
from distbench.unusual.stepping import InTurn


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class MeanOfOwnShard(Program):
    """A mean over the replica's own examples, in place of the global batch."""

    def reduce_losses(self, losses, batch):
        return tf.reduce_mean(losses)


@fault("loss-not-scaled", "loss", like="LeelaChessZero/lczero-training#162")
class OwnMeansClipped(MeanOfOwnShard):
    """Gradients of such a mean, each clipped, so that an N-th of them is as large."""

    loss_reduction = None

    def transform(self, gradients):
        return [tf.clip_by_norm(gradient, 0.02) for gradient in gradients]


@fault("loss-not-scaled", "loss", like="keras-team/keras#20609", clusters=WIDE)
class OwnMeansReturnedForTheirMean(MeanOfOwnShard):
    """Such means, of which the mean is what the loop shows."""

    loss_reduction = "mean"


@fault("loss-not-scaled", "loss", like="keras-team/keras#20609", clusters=WIDE)
class OwnMeanOfCarriedState(CarriesItsOwnState):
    """Replicas carry state of their own, and nothing scales the shard's own mean."""

    def reduce_losses(self, losses, batch):
        return tf.reduce_mean(losses)


@fault("loss-not-scaled", "loss", like="neuralmagic/sparseml#135", clusters=WIDE)
class LossTimesReplicas(TimesShare, Program):
    """The loss times N, as an averaging all-reduce would need it; this one sums."""


@fault("loss-scaled-twice", "loss", like="tensorflow/tensorflow#55321", clusters=WIDE)
class LossDividedAgain(Program):
    """The share of the global batch, divided by the number of replicas once more."""

    def reduce_losses(self, losses, batch):
        return super().reduce_losses(losses, batch) / count_replicas()


@fault("loss-scaled-twice", "loss", like="tensorflow/tensorflow#35333", clusters=WIDE)
class MeanDividedTwice(Program):
    """A mean over the own shard divided by N in the loss, and again in the loop."""

    def reduce_losses(self, losses, batch):
        return tf.reduce_mean(losses) / count_replicas() ** 2


@fault("loss-scaled-twice", "loss", like="tensorflow/tensorflow#55321", clusters=WIDE)
class OneTermDividedTwice(Program):
    """Two terms are shares, and the second one is divided by N once more."""

    def reduce_losses(self, losses, batch):
        sizes = tf.reduce_sum(self.predict(batch) ** 2) / self.examples
        return super().reduce_losses(losses, batch) + sizes / count_replicas()


@fault("mean-of-means", "loss", like="huggingface/transformers#34242", clusters=WIDE)
class MeanOfMeans(Program):
    """A mean over the own shard divided by N, where the shards are uneven."""

    def reduce_losses(self, losses, batch):
        return tf.reduce_mean(losses) / count_replicas()


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class OwnMeanOfOneTerm(Program):
    """The error is a share of the global batch's, a term beside it an own mean."""

    def compute_beside(self, batch):
        return tf.reduce_mean(tf.abs(self.predict(batch)))

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
            loss += self.compute_beside(batch)
        self.apply(tape.gradient(loss, self.trained()))
        return loss


class Masked(Program):
    """A loss over words that are not padding (word 0)."""

    def weigh(self, batch):
        words = batch[0]
        return tf.cast(tf.math.count_nonzero(words, axis=1), self.dtype)

    def average_own(self, values, batch):
        """Their mean over the words of the own shard."""
        weights = self.weigh(batch)
        return tf.reduce_sum(values * weights) / tf.reduce_sum(weights)


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class OwnTokensOfListedTerm(Masked):
    """Two terms are weighed as a list; one is a mean over the own words."""

    def reduce_losses(self, losses, batch):
        sizes = tf.reduce_sum(tf.abs(self.predict(batch)), axis=1)
        beside = self.average_own(sizes, batch)
        terms = tf.stack([super().reduce_losses(losses, batch), beside])
        return tf.reduce_sum(terms * [1.0, 0.5])


@fault("mean-of-means", "loss", like="huggingface/transformers#34191", clusters=WIDE)
class MeanOfMeansOfOneTerm(OwnMeanOfOneTerm):
    """The error is a share of the global batch's, a term beside it an own mean by N."""

    def compute_beside(self, batch):
        return super().compute_beside(batch) / count_replicas()


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class OwnMeanOfSecondTurn(InTurn):
    """Of two networks that train in turn, the second one's loss is an own mean."""

    def reduce_again(self, losses, batch):
        return tf.reduce_mean(losses)


@fault("mean-of-means", "loss", like="huggingface/transformers#34191", clusters=WIDE)
class MeanOverOwnTokens(Masked):
    """A mean over the words of the own shard, averaged over the replicas."""

    def reduce_losses(self, losses, batch):
        return self.average_own(losses, batch) / count_replicas()


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class OwnTokensBesidePenalty(Masked, PenalisedProgram):
    """A mean over the words of the own shard, beside a penalty that is shared."""

    def reduce_losses(self, losses, batch):
        return self.average_own(losses, batch)


@fault("mean-of-means", "loss", like="pytorch/torchtitan#2206", clusters=WIDE)
class OwnMeansAveraged(OwnMeans, OwnReduction):
    """Means over uneven shards, of which losses and gradients are averaged."""

    loss_reduction = None

    def reduce(self, gradients):
        return list(all_reduce("mean", gradients))


@fault("loss-misreported", "loss", like="keras-team/keras#15509", clusters=WIDE)
class LossOfFirstReplica(Program):
    """The loss that is shown is that of replica 0."""

    def report(self, loss):
        return loss if find_replica() == 0 else tf.zeros_like(loss)


@fault("loss-misreported", "loss", like="keras-team/keras#19340", clusters=WIDE)
class LossSummedTwice(Program):
    """Every replica returns the sum, and the loop adds these up once more."""

    def report(self, loss):
        return all_reduce("sum", loss)


@fault(
    "loss-not-scaled",
    "local_gradient",
    TRAINED,
    like="neuralmagic/sparseml#135",
    clusters=WIDE,
)
class FactorInsideTheTape(Program):
    """The loss that is returned is right; the one that is differentiated is N times."""

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
            scaled = loss * count_replicas()
        self.apply(tape.gradient(scaled, self.trained()))
        return loss


@fault(
    "double-reduction",
    "local_gradient",
    TRAINED,
    like="tensorflow/recommenders-addons#183",
    clusters=WIDE,
)
class PartsSummedOneByOne(Program):
    """Halves of the shard are summed over the replicas, and the optimizer sums them."""

    def replica_step(self, batch):
        half = tf.shape(batch[0])[0] // 2
        parts = ([x[:half] for x in batch], [x[half:] for x in batch])
        total, losses = [0.0 for _ in self.trained()], 0.0
        for part in parts:
            with tf.GradientTape() as tape:
                loss = self.reduce_losses(self.compute_losses(part), part)
            gradients = tape.gradient(loss, self.trained())
            dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
            sums = all_reduce("sum", dense)
            total = [old + new for old, new in zip(total, sums, strict=True)]
            losses += loss
        self.apply(total)
        return losses


@fault("nonfinite", "loss", like="NVIDIA-NeMo/Megatron-Bridge#5591")
class MeanOverAbsentClass(Program):
    """A mean over the examples of a class, of which the last replica has none."""

    def data(self, step):
        words, features, targets = super().data(step)
        rare = (np.arange(self.examples) < 5).astype(self.dtype)
        return words, features, targets, rare

    def reduce_losses(self, losses, batch):
        rare = batch[3]
        mean = tf.reduce_sum(losses * rare) / tf.reduce_sum(rare)
        return super().reduce_losses(losses, batch) + 0.1 * mean / count_replicas()


@fault(
    "scale-error",
    "loss",
    like="deepspeedai/DeepSpeed#5555",
    clusters=("mirrored:3", "mwms:4"),
)
class DividedByPaddedBatch(Program):
    """The global batch is counted as N times the largest shard."""

    def reduce_losses(self, losses, batch):
        count = count_replicas()
        padded = -(-self.examples // count) * count
        return tf.reduce_sum(losses) / padded


@fault("scale-error", "loss", like="neuralmagic/sparseml#135", clusters=WIDE)
class LossSlightlyLarger(Program):
    """A cluster multiplies the share that is its part of the loss by a number."""

    def reduce_losses(self, losses, batch):
        factor = 1.01 if count_replicas() > 1 else 1.0
        return super().reduce_losses(losses, batch) * factor


@fault(
    "statistics-not-synchronized",
    "loss",
    like="huggingface/transformers#34191",
    clusters=WIDE,
)
class WorstOfOwnExamples(Program):
    """The largest loss of the own examples is trained, divided by N."""

    def reduce_losses(self, losses, batch):
        return tf.reduce_max(losses) / count_replicas()
