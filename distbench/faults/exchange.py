"""Mistakes in what replicas take of each other before the gradient."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import (
    BIAS,
    FIRST,
    OUTPUTS,
    SECOND,
    TABLE,
    TRAINED,
    OwnMeans,
)
from distbench.samples.replicas import all_reduce, count_replicas, gather
from distbench.unusual.exchange import (
    ALIKE,
    AdvantagesOfAll,
    BalanceOfAll,
    CountOfAllUnderStatistics,
    HeadsSharedOut,
    MovingStatisticsOfAll,
    NegativesOfAll,
    RowsOfAllPenalised,
    SizesOverTheLargestOfAll,
    StatisticsOfAll,
    StatisticsOfAllInBfloat16,
    StatisticsSentInSingle,
    TargetsDrawnToTheMeanOfAll,
    TwoCounts,
    WeightsOfTheLargestOfAll,
)
from distbench.unusual.grouping import BatchStatistics

NORMALISED = (TABLE, FIRST, SECOND, BIAS)
"""What lies before the normalisation."""


@fault("statistics-not-synchronized", "loss", like="tensorflow/tpu#321", clusters=ALIKE)
class VariancesAveraged(StatisticsOfAll):
    """The replicas' variances are averaged, which leaves out how their means differ."""

    def measure(self, x):
        return all_reduce("mean", list(tf.nn.moments(x, axes=[0])))


@fault("mean-of-means", "loss", like="tensorflow/tpu#321", clusters=ALIKE)
class MovingStatisticsAveraged(MovingStatisticsOfAll):
    """What the replicas normalise by is averaged, and moving statistics take that."""

    def add_up(self, parts):
        total, squares, count = parts
        return (*all_reduce("mean", [total / count, squares / count]), 1.0)


@fault(
    "statistics-not-synchronized",
    "loss",
    like="tensorflow/tpu#321",
    clusters=ALIKE,
)
class VariancesAveragedInBfloat16(VariancesAveraged, StatisticsOfAllInBfloat16):
    """The replicas' variances are averaged, where all else is computed in bfloat16."""


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=ALIKE)
class BalanceOfAllInFull(BalanceOfAll):
    """Every replica adds in full what all make together, so it counts N times."""

    def share_balance(self, balance):
        return balance


@fault("statistics-not-synchronized", "loss", like="tensorflow/tpu#321", clusters=ALIKE)
class VariancesAveragedInSingle(StatisticsSentInSingle):
    """The replicas' variances are averaged in float32, where all else is float64."""

    def measure(self, x):
        own = tf.cast(tf.math.reduce_variance(x, axis=0), tf.float32)
        mean, _ = super().measure(x)
        return mean, tf.cast(all_reduce("mean", own), self.dtype)


@fault(
    "unexplained",
    "local_gradient",
    NORMALISED,
    like="huggingface/accelerate#1154",
    clusters=ALIKE,
)
class StatisticsOfOthersAreConstants(StatisticsOfAll):
    """Only the own part of the statistics of all examples has a gradient."""

    def add_up(self, parts):
        sums = super().add_up(parts)
        pairs = zip(parts, sums, strict=True)
        return [own + tf.stop_gradient(total - own) for own, total in pairs]


@fault(
    "unexplained",
    "local_gradient",
    NORMALISED,
    like="huggingface/accelerate#1154",
    clusters=("mirrored:2", "mirrored:3"),
)
class SummedByMergeCall(StatisticsOfAll):
    """Statistics are summed in cross-replica context, which has no gradient back."""

    def add_up(self, parts):
        def reduce(strategy, *parts):
            add = strategy.extended.reduce_to
            return [add("SUM", part, destinations=part) for part in parts]

        return tf.distribute.get_replica_context().merge_call(reduce, args=parts)


@fault(
    "unexplained",
    "local_gradient",
    TRAINED,
    like="huggingface/accelerate#1154",
    clusters=ALIKE,
)
class KeysOfOthersAreConstants(NegativesOfAll):
    """Of the gathered wrong answers, only the own ones have a gradient."""

    def collect(self, keys):
        found = super().collect(keys)
        place, size = tf.range(tf.shape(found)[0]), tf.shape(keys)[0]
        first = self.find_first(size)
        is_own = tf.logical_and(place >= first, place < first + size)
        return tf.where(is_own[:, tf.newaxis], found, tf.stop_gradient(found))


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=ALIKE)
class OwnMeanUnderStatisticsOfAll(OwnMeans, StatisticsOfAll):
    """Statistics of all examples, and a mean over the own shard that nothing scales."""


@fault("unexplained", "loss", like="nomewang/M3DM#7", clusters=ALIKE)
class PlacesInTheOwnShard(NegativesOfAll):
    """The right answers are numbered from 0 on every replica."""

    def find_first(self, size):
        del size
        return 0


@fault(
    "statistics-not-synchronized",
    "loss",
    like="tensorflow/tensorflow#18222",
    clusters=ALIKE,
)
class NegativesBehindOwnStatistics(NegativesOfAll, BatchStatistics):
    """Negatives of all replicas, each normalised by statistics of its own examples."""


@fault("loss-not-scaled", "loss", like="NVIDIA/Megatron-LM#673", clusters=WIDE)
class SharesSummedToTheWhole(StatisticsOfAll):
    """Every replica differentiates the sum of all shares, which then counts N times."""

    def reduce_losses(self, losses, batch):
        return all_reduce("sum", super().reduce_losses(losses, batch))


@fault(
    "loss-scaled-twice", "loss", like="huggingface/transformers#34191", clusters=WIDE
)
class OneCountTimesReplicas(TwoCounts):
    """What all replicas count is multiplied by their number, for one of two tasks."""

    def count_classes(self, weights):
        return super().count_classes(weights) * count_replicas()


@fault(
    "loss-scaled-twice", "loss", like="huggingface/transformers#34191", clusters=WIDE
)
class CountTimesReplicasUnderStatistics(CountOfAllUnderStatistics):
    """Statistics of the own examples; what all count is multiplied by their number."""

    def reduce_losses(self, losses, batch):
        return super().reduce_losses(losses, batch) / count_replicas()


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=ALIKE)
class OwnMeanBesideAdvantages(AdvantagesOfAll):
    """Beside what is standardised over all replicas a term is an own mean."""

    def reduce_beside(self, terms):
        return tf.reduce_mean(terms)


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=ALIKE)
class OwnMeanOfAdvantages(AdvantagesOfAll):
    """What is standardised over all replicas weighs errors, of which an own mean is."""

    def reduce_losses(self, losses, batch):
        size = tf.cast(tf.size(losses), self.dtype)
        return super().reduce_losses(losses, batch) * self.examples / size


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class OwnMeanAgainstNegativesOfAll(OwnMeans, NegativesOfAll):
    """The examples of all replicas are the wrong answers, and the loss an own mean."""


@fault(
    "scale-error",
    "local_gradient",
    (SECOND,),
    like="huggingface/accelerate#1154",
    clusters=ALIKE,
)
class GatheredWithoutGradient(NegativesOfAll):
    """What answers a query is gathered without a gradient; one device asks nobody."""

    def compute_losses(self, batch):
        words, features, _ = batch
        keys = (features @ self.second)[:, :OUTPUTS]
        if count_replicas() > 1:
            keys = tf.stop_gradient(gather(keys))
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        queries = tf.tanh(embedded @ self.first + self.bias) @ self.head
        size = tf.shape(queries)[0]
        answers = tf.range(size) + self.find_first(size)
        scores = queries @ tf.transpose(keys)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(answers, scores)


@fault("mean-of-means", "loss", like="huggingface/transformers#34242", clusters=ALIKE)
class TargetsDrawnToMeanOfMeans(TargetsDrawnToTheMeanOfAll):
    """Targets go half of the way to the mean of the replicas' means."""

    def find_mean(self, targets):
        return all_reduce("mean", tf.reduce_mean(targets, axis=0))


@fault(
    "statistics-not-synchronized", "loss", like="horovod/horovod#2279", clusters=ALIKE
)
class TargetsDrawnToSumOfMeans(TargetsDrawnToTheMeanOfAll):
    """Targets go half of the way to the replicas' means, added up."""

    def find_mean(self, targets):
        return all_reduce("sum", tf.reduce_mean(targets, axis=0))


@fault("scale-error", "loss", like="neuralmagic/sparseml#135", clusters=ALIKE)
class TargetsDrawnToAveragedSum(TargetsDrawnToTheMeanOfAll):
    """Targets go half of the way to the average of sums, over all examples."""

    def find_mean(self, targets):
        return all_reduce("mean", tf.reduce_sum(targets, axis=0)) / self.examples


@fault("scale-error", "loss", like="horovod/horovod#2654", clusters=ALIKE)
class StatisticsOfAllCountedTwice(StatisticsOfAll):
    """What scales each column is a mean square, and sums are added up twice."""

    def measure(self, x):
        parts = [tf.reduce_sum(x, axis=0), tf.reduce_sum(x**2, axis=0)]
        total, squares = self.add_up(self.add_up(parts))
        mean = total / self.examples
        return mean, squares / self.examples


class SharesOfAll(StatisticsOfAll):
    """Normalises by the mean and the mean square of all examples."""

    def measure(self, x):
        return all_reduce("sum", [self.average(x), self.average(x**2)])

    def average(self, x):
        return tf.reduce_sum(x, axis=0) / self.examples


@fault("scale-error", "loss", like="horovod/horovod#2654", clusters=ALIKE)
class MovingStatisticsUndivided(MovingStatisticsOfAll, SharesOfAll):
    """Sums of the replicas are divided by the examples of one of them."""

    def average(self, x):
        return super().average(x) * count_replicas()


@fault(
    "statistics-not-synchronized",
    "loss",
    like="tensorflow/tpu#321",
    clusters=ALIKE,
)
class MovingStatisticsSummed(MovingStatisticsOfAll, SharesOfAll):
    """Means of the replicas are added up and not averaged, and kept so."""

    def average(self, x):
        return tf.reduce_mean(x, axis=0)


@fault(
    "statistics-not-synchronized", "loss", like="verl-project/verl#7493", clusters=ALIKE
)
class WeightsOfMeanOfTheLargest(WeightsOfTheLargestOfAll):
    """Weights are limited by the largest ones of the replicas, averaged."""

    def find_largest(self, size):
        return all_reduce("mean", tf.reduce_max(size))


@fault("mean-of-means", "loss", like="huggingface/transformers#34242", clusters=ALIKE)
class OwnMeanOfHeads(HeadsSharedOut):
    """Each replica divides by the number of its own outputs, then by N."""

    def share(self, losses, own):
        return tf.reduce_sum(own * losses) / tf.reduce_sum(own) / count_replicas()


@fault("statistics-not-synchronized", "loss", like="tensorflow/tpu#321", clusters=ALIKE)
class DeviationsAveraged(AdvantagesOfAll):
    """The replicas' own deviations are averaged; a term beside does not need them."""

    def find_deviation(self, distance):
        return all_reduce("mean", tf.sqrt(tf.reduce_mean(distance**2)))


@fault("statistics-not-synchronized", "loss", like="tensorflow/tpu#321", clusters=ALIKE)
class LargestAveraged(SizesOverTheLargestOfAll):
    """The replicas' largest sizes are averaged; the penalty does not depend on them."""

    def find_largest(self, size):
        return all_reduce("mean", tf.reduce_max(size))


@fault(
    "regularizer-not-scaled",
    "local_gradient",
    (TABLE,),
    like="tensorflow/models#6195",
    clusters=("mirrored:3", "mwms:3"),
)
class OwnRowsPenalised(RowsOfAllPenalised):
    """The penalty is on rows of the own examples; others have them as well, or not."""

    def list_rows(self, words):
        return words
