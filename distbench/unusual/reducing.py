"""Unusual but correct ways to sum gradients over the replicas."""

from __future__ import annotations

from distbench.samples.adaptive import clip_groups, clip_units
from distbench.samples.lazy import legacy, tf
from distbench.samples.masked import mask_gradients
from distbench.samples.program import (
    AdamByHand,
    ByHand,
    MomentumByHand,
    OwnReduction,
    Program,
    TimesShare,
)
from distbench.samples.replicas import (
    all_reduce,
    change_joined,
    count_replicas,
    find_replica,
)
from distbench.samples.slices import add_up_rows
from distbench.samples.warmed import Warmed
from distbench.unusual.program import unusual


@unusual()
class OwnSum(OwnReduction):
    """The user's own all-reduce, with the optimizer's switched off."""


@unusual()
class SumByHand(ByHand):
    """No optimizer: the user sums and updates."""


@unusual()
class MeanAggregator(TimesShare, Program):
    """An aggregator that averages, under a loss that is N times the share."""

    loss_reduction = "mean"

    def make_optimizer(self):
        return legacy.SGD(0.05, momentum=0.9, gradient_aggregator=self.average)

    @staticmethod
    def average(pairs):
        pairs = list(pairs)
        means = all_reduce("mean", [g for g, _ in pairs])
        return list(zip(means, [v for _, v in pairs], strict=True))


@unusual()
class MeansHandedInShares(TimesShare, Program):
    """Such means are divided by N, and the optimizer sums them."""

    loss_reduction = "mean"

    def apply(self, gradients):
        means = all_reduce("mean", [tf.convert_to_tensor(g) for g in gradients])
        super().apply([mean / count_replicas() for mean in means])


@unusual(clusters=("mirrored:3", "mwms:3"))
class AveragedThenSummed(Program):
    """The user averages what the optimizer then sums, and both of it rounds."""

    def transform(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return list(all_reduce("mean", dense))


@unusual(clusters=("mirrored:3", "mirrored:4", "mwms:3"))
class SummedThenAveraged(Program):
    """A transformer averages the sums, which every replica holds, and that rounds."""

    def make_optimizer(self):
        average = MeanAggregator.average
        return legacy.SGD(0.05, momentum=0.9, gradient_transformers=[average])


@unusual()
class ClippedAfterSum(OwnReduction):
    """The global norm is clipped after the sum, by the user."""

    def reduce(self, gradients):
        reduced = super().reduce(gradients)
        return list(tf.clip_by_global_norm(reduced, 0.05)[0])


@unusual()
class GroupsClippedAfterSum(OwnReduction):
    """Two groups of variables are clipped by their joint norms, after the sum."""

    def reduce(self, gradients):
        return clip_groups(super().reduce(gradients))


@unusual()
class ClippedOnceWarm(Warmed):
    """From the fifth step on the global norm of the sum is clipped."""


@unusual()
class ClippedAdaptivelyAfterSum(OwnReduction):
    """Each unit's gradient is limited to a share of its weights, after the sum."""

    def reduce(self, gradients):
        pairs = zip(super().reduce(gradients), self.trained(), strict=True)
        return [clip_units(tf.convert_to_tensor(g), v, 0.1) for g, v in pairs]


@unusual()
class ClippedByExample(OwnReduction):
    """Each example's gradient is clipped, and all replicas add one noise to the sum."""

    def replica_step(self, batch):
        losses, each = self.differentiate(batch)
        self.apply([tf.reduce_sum(self.clip(g), axis=0) / self.examples for g in each])
        return self.reduce_losses(losses, batch)

    def differentiate(self, batch):
        """Losses of the examples, and for each variable their gradients."""
        with tf.GradientTape() as tape:
            losses = self.compute_losses(batch)
        return losses, tape.jacobian(losses, self.trained())

    def clip(self, each):
        """Every example's gradient of a variable, no longer than 1."""
        return tf.clip_by_norm(each, 1.0, axes=list(range(1, each.shape.rank)))

    def reduce(self, gradients):
        return [
            total + 0.01 * tf.random.stateless_normal(total.shape, [3, 7])
            for total in super().reduce(gradients)
        ]


@unusual()
class ClippedInVectorizedMap(ClippedByExample):
    """Clips each example's gradient in a map that is given one example at a time."""

    def differentiate(self, batch):
        return tf.vectorized_map(self.differentiate_one, batch)

    def differentiate_one(self, example):
        """Loss and gradients of a single example."""
        with tf.GradientTape() as tape:
            loss = self.compute_losses([value[tf.newaxis] for value in example])[0]
        gradients = tape.gradient(loss, self.trained())
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]


@unusual()
class TwoStages(OwnReduction):
    """Dense gradients are joined and summed in one piece, the sparse one apart."""

    def reduce(self, gradients):
        sparse, *dense = gradients
        table = all_reduce("sum", sparse)
        return [table, *change_joined(dense, lambda flat: all_reduce("sum", flat))]


@unusual()
class SumOfMeans(OwnReduction):
    """A mean over the replicas, multiplied by their number."""

    def reduce(self, gradients):
        dense = [tf.convert_to_tensor(g) for g in gradients]
        return [g * count_replicas() for g in all_reduce("mean", dense)]


@unusual()
class ScaledAndUnscaled(OwnReduction):
    """Gradients are scaled by a power of two for the way, as a loss scale does."""

    def reduce(self, gradients):
        scaled = [tf.convert_to_tensor(g) * 1024.0 for g in gradients]
        return [g / 1024.0 for g in super().reduce(scaled)]


@unusual()
class OneVariableEach(OwnReduction):
    """One all-reduce for every variable, in reverse order."""

    def reduce(self, gradients):
        reduced = [all_reduce("sum", gradient) for gradient in reversed(gradients)]
        return reduced[::-1]


@unusual()
class DenseTable(OwnReduction):
    """The sparse gradient is made dense before it is summed."""

    def reduce(self, gradients):
        return super().reduce([tf.convert_to_tensor(g) for g in gradients])


@unusual()
class RowsAddedUpFirst(OwnReduction):
    """Each replica adds up its repeated rows before the slices are gathered."""

    def reduce(self, gradients):
        sparse, *dense = gradients
        return super().reduce([add_up_rows(sparse), *dense])


@unusual()
class TokenCount(Program):
    """The loss is a mean over words that are counted over all replicas."""

    def reduce_losses(self, losses, batch):
        words = tf.cast(tf.math.count_nonzero(batch[0], axis=1), self.dtype)
        total = all_reduce("sum", tf.reduce_sum(words))
        return tf.reduce_sum(losses * words) / total


@unusual()
class LocalMeanReported(Program):
    """Trains on the share, and reports N times it, which is averaged."""

    loss_reduction = "mean"

    def report(self, loss):
        return loss * count_replicas()


@unusual()
class AnyLossReduction(Program):
    """Does not say how its losses combine."""

    loss_reduction = None


@unusual()
class AccumulatorOnRead(Program):
    """Counts its examples in a variable that is added up when it is read."""

    def build(self, strategy):
        super().build(strategy)
        self.seen = tf.Variable(
            0.0,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
            name="seen",
        )

    def variables(self):
        return [*self.trained(), self.seen]

    def compute_losses(self, batch):
        losses = super().compute_losses(batch)
        self.seen.assign_add(tf.cast(tf.shape(losses)[0], "float32"))
        return losses


@unusual()
class OwnMoments(AdamByHand):
    """An Adam by hand whose moments are variables of the program."""


@unusual()
class OwnMomentsOfClippedSum(AdamByHand):
    """The sum is clipped before both moments take it."""

    def reduce_all(self, gradients):
        return tf.clip_by_global_norm(super().reduce_all(gradients), 0.05)[0]


@unusual()
class OwnMomentum(MomentumByHand):
    """No optimizer, and the momentum lies among the program's variables."""


@unusual()
class OneMaskOnAllGradients(Program):
    """Half of all elements are left out, the same ones of every replica."""

    def transform(self, gradients):
        return mask_gradients(gradients, 3)


@unusual()
class DividedByNormOfSum(OwnReduction):
    """The sum of all gradients is divided by its norm."""

    def reduce(self, gradients):
        own = [tf.convert_to_tensor(gradient) for gradient in gradients]
        total = super().reduce(own)
        size = self.measure(own, total)
        return [gradient / (size + 1e-3) for gradient in total]

    def measure(self, own, total):
        """What the sum is divided by."""
        del own
        return tf.linalg.global_norm(total)


@unusual()
class SkippedByNormOfSum(DividedByNormOfSum):
    """A step whose gradient is too long is left out, by the norm of the sum."""

    longest = 1.05

    def reduce(self, gradients):
        own = [tf.convert_to_tensor(gradient) for gradient in gradients]
        total = OwnReduction.reduce(self, own)
        is_taken = self.measure(own, total) < self.longest
        return [tf.where(is_taken, gradient, 0.0) for gradient in total]


@unusual()
class DividedByNormOfShards(DividedByNormOfSum):
    """Each replica squares a share of the rows; all of them square the bias."""

    def measure(self, own, total):
        del own
        *kernels, bias, head = total
        rows = [gradient[find_replica() :: count_replicas()] for gradient in kernels]
        rows.append(head[find_replica() :: count_replicas()])
        return tf.sqrt(self.join(tf.linalg.global_norm(rows) ** 2, tf.norm(bias) ** 2))

    def join(self, of_shard, of_all):
        """The squares of the whole norm."""
        return all_reduce("sum", of_shard) + of_all


@unusual()
class LargeSumsClipped(OwnReduction):
    """The global norm of the sum is clipped, if it is larger than in any step."""

    def reduce(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return tf.clip_by_global_norm(super().reduce(dense), 100.0)[0]
