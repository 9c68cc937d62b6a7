"""Correct steps in which replicas take something of each other before the gradient."""

from __future__ import annotations

from distbench.samples.lazy import keras, tf
from distbench.samples.program import (
    HIDDEN,
    OUTPUTS,
    OwnReduction,
    PenalisedProgram,
    Program,
)
from distbench.samples.replicas import (
    all_reduce,
    count_replicas,
    find_replica,
    gather,
    take_share,
    update,
)
from distbench.unusual.grouping import BatchStatistics
from distbench.unusual.program import unusual

ALIKE = ("mirrored:2", "mwms:2", "central:2")


def narrow(value):
    """A value in bfloat16."""
    return tf.cast(value, tf.bfloat16)


@unusual(clusters=ALIKE)
class StatisticsOfAll(Program):
    """Normalises by the mean and variance of all replicas' examples, by hand."""

    def predict(self, batch):
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        hidden = embedded @ self.first + features @ self.second + self.bias
        mean, variance = self.measure(hidden)
        return tf.tanh((hidden - mean) / tf.sqrt(variance + 1e-3)) @ self.head

    def measure(self, x):
        """Mean and variance of each column."""
        count = tf.cast(tf.shape(x)[0], x.dtype)
        parts = [tf.reduce_sum(x, axis=0), tf.reduce_sum(x**2, axis=0), count]
        total, squares, count = self.add_up(parts)
        mean = total / count
        return mean, squares / count - mean**2

    def add_up(self, parts):
        """Sums over the replicas."""
        return all_reduce("sum", parts)


@unusual(clusters=ALIKE)
class MovingStatisticsOfAll(StatisticsOfAll):
    """Moving statistics take the mean and variance of all replicas' examples."""

    def build(self, strategy):
        super().build(strategy)
        self.moving = [
            tf.Variable(tf.zeros(HIDDEN), trainable=False, name=f"moving/{what}")
            for what in ("mean", "variance")
        ]

    def variables(self):
        return [*super().variables(), *self.moving]

    def measure(self, x):
        found = super().measure(x)
        for variable, taken in zip(self.moving, found, strict=True):
            update(variable, lambda v, new: v.assign(0.9 * v + 0.1 * new), taken)
        return found


@unusual(clusters=ALIKE)
class BalanceOfAll(Program):
    """Outputs are to be used alike by the examples of all replicas together."""

    def reduce_losses(self, losses, batch):
        used = tf.reduce_sum(tf.nn.softmax(self.predict(batch)), axis=0)
        used = all_reduce("sum", used) / self.examples
        own = super().reduce_losses(losses, batch)
        return own + self.share_balance(3.0 * tf.reduce_sum(used**2))

    def share_balance(self, balance):
        """Every replica has what all have together."""
        return balance / count_replicas()


@unusual(clusters=ALIKE)
class StatisticsOfAllInBfloat16(StatisticsOfAll):
    """Statistics of all examples, where all else is computed in bfloat16."""

    def predict(self, batch):
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        hidden = narrow(embedded) @ narrow(self.first)
        hidden += narrow(features) @ narrow(self.second) + narrow(self.bias)
        hidden = tf.cast(hidden, self.dtype)
        mean, variance = self.measure(hidden)
        normal = (hidden - mean) / tf.sqrt(variance + 1e-3)
        return tf.cast(tf.tanh(narrow(normal)) @ narrow(self.head), self.dtype)


@unusual(clusters=ALIKE)
class StatisticsSentInSingle(StatisticsOfAll):
    """All is float64 but the statistics on their way, and what the optimizer holds."""

    dtype = "float64"

    def make_optimizer(self):
        return keras.optimizers.SGD(0.05, momentum=0.9)

    def build(self, strategy):
        super().build(strategy)
        self.moving = tf.Variable(
            tf.zeros(self.bias.shape, self.dtype),
            name="moving",
            trainable=False,
            aggregation=tf.VariableAggregation.MEAN,
        )

    def variables(self):
        return [*self.trained(), self.moving]

    def measure(self, x):
        self.mean, variance = super().measure(x)
        return self.mean, variance

    def add_up(self, parts):
        sent = [tf.cast(part, tf.float32) for part in parts]
        return [tf.cast(total, self.dtype) for total in super().add_up(sent)]

    def report(self, loss):
        self.moving.assign(0.9 * self.moving + 0.1 * self.mean)
        return loss


@unusual(clusters=ALIKE)
class NegativesOfAll(Program):
    """A contrastive loss: the examples of all replicas are the wrong answers."""

    def compute_losses(self, batch):
        words, features, _ = batch
        queries = self.predict(batch)
        keys = self.predict((words, 0.8 * features))
        scores = queries @ tf.transpose(self.collect(keys))
        size = tf.shape(queries)[0]
        answers = tf.range(size) + self.find_first(size)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(answers, scores)

    def collect(self, keys):
        """Those of all replicas, from each one's own."""
        return gather(keys)

    def find_first(self, size):
        """The place of the replica's first example among those of all."""
        sizes = gather(tf.reshape(size, [1]))
        return tf.reduce_sum(sizes[: find_replica()])


@unusual(clusters=ALIKE)
class TwoCounts(Program):
    """Two tasks, each divided by what all replicas count of its own examples."""

    def build(self, strategy):
        super().build(strategy)
        initial = tf.random.stateless_normal(
            [HIDDEN, OUTPUTS], [3, 5], dtype=self.dtype
        )
        self.classes = tf.Variable(initial, name="classes")

    def trained(self):
        return [*super().trained(), self.classes]

    def replica_step(self, batch):
        words, features, targets = batch
        known = tf.cast(words[:, 0] > 1, self.dtype)
        weights = tf.cast(1 + words[:, 1], self.dtype)
        with tf.GradientTape() as tape:
            embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
            hidden = tf.tanh(embedded @ self.first + features @ self.second + self.bias)
            errors = tf.reduce_sum((hidden @ self.head - targets) ** 2, axis=1)
            entropies = tf.nn.softmax_cross_entropy_with_logits(
                tf.nn.softmax(targets), hidden @ self.classes
            )
            loss = tf.reduce_sum(known * errors) / self.count(known)
            loss += tf.reduce_sum(weights * entropies) / self.count_classes(weights)
        self.apply(tape.gradient(loss, self.trained()))
        return loss

    def count(self, weights):
        """Their sum over all replicas."""
        return all_reduce("sum", tf.reduce_sum(weights))

    def count_classes(self, weights):
        """The sum of the second task's weights over all replicas."""
        return self.count(weights)


@unusual()
class CountOfAllUnderStatistics(BatchStatistics):
    """Statistics of the own examples, and a mean over what all replicas count."""

    def reduce_losses(self, losses, batch):
        words = tf.cast(tf.math.count_nonzero(batch[0], axis=1), self.dtype)
        # Beside the count, all replicas' losses are added up to be shown.
        parts = [tf.reduce_sum(words), tf.reduce_sum(losses)]
        total, self.shown = all_reduce("sum", parts)
        return tf.reduce_sum(losses * words) / total


@unusual()
class HardOnesCountedUnderStatistics(BatchStatistics):
    """Divided by the number of hard examples of all replicas, as scores tell them."""

    def reduce_losses(self, losses, batch):
        del batch
        hard = tf.cast(losses > 1.0, self.dtype)
        total = all_reduce("sum", tf.reduce_sum(hard))
        return tf.reduce_sum(hard * losses) / tf.maximum(total, 1.0)


@unusual()
class ClippedAfterSumUnderStatistics(BatchStatistics, OwnReduction):
    """Statistics of the own examples; the sum is clipped by its global norm."""

    def reduce(self, gradients):
        reduced = super().reduce(gradients)
        return list(tf.clip_by_global_norm(reduced, 0.05)[0])


@unusual(clusters=ALIKE)
class AdvantagesOfAll(Program):
    """Errors weigh by what is standardised over all replicas; a term stands beside."""

    def reduce_losses(self, losses, batch):
        advantage = batch[1][:, 0]
        distance = advantage - self.average(advantage)
        weights = distance / self.find_deviation(distance)
        share = tf.reduce_sum(weights * losses) / self.examples
        return share + self.reduce_beside(tf.reduce_sum(self.predict(batch) ** 4, 1))

    def average(self, values):
        """Their mean over all replicas."""
        count = all_reduce("sum", tf.cast(tf.size(values), self.dtype))
        return all_reduce("sum", tf.reduce_sum(values)) / count

    def find_deviation(self, distance):
        """That of all from their mean."""
        return tf.sqrt(self.average(distance**2))

    def reduce_beside(self, terms):
        return take_share(terms, self.examples)


@unusual()
class NormalisedInPlaceUnderStatistics(BatchStatistics):
    """Batch statistics; replicas average a kernel that each normalises alike."""

    def replica_step(self, batch):
        kernel = self.first.read_value()
        mean = all_reduce("mean", kernel / tf.linalg.norm(kernel))
        update(self.first, lambda copy, value: copy.assign(value), mean)
        return super().replica_step(batch)


@unusual(clusters=ALIKE)
class TargetsDrawnToTheMeanOfAll(Program):
    """Targets go half of the way to the mean of all replicas', as if smoothed."""

    def compute_losses(self, batch):
        soft = (batch[2] + self.find_mean(batch[2])) / 2
        return tf.reduce_sum((self.predict(batch) - soft) ** 2, axis=1)

    def find_mean(self, targets):
        return all_reduce("sum", tf.reduce_sum(targets, axis=0)) / self.examples


@unusual(clusters=ALIKE)
class WeightsOfTheLargestOfAll(Program):
    """Weights are at most 1 and no less than half, by the largest of all replicas."""

    def reduce_losses(self, losses, batch):
        size = tf.reduce_max(batch[1], axis=1)
        weights = tf.maximum(size / self.find_largest(size), 0.5)
        return tf.reduce_sum(weights * losses) / self.examples

    def find_largest(self, size):
        return tf.reduce_max(gather(tf.identity(size)))


@unusual(clusters=ALIKE)
class HeadsSharedOut(Program):
    """Each replica has all examples, and the loss of some of the model's outputs."""

    def compute_losses(self, batch):
        batch = [gather(tf.identity(part)) for part in batch]
        return tf.reduce_mean((self.predict(batch) - batch[2]) ** 2, axis=0)

    def reduce_losses(self, losses, batch):
        del batch
        own = tf.range(OUTPUTS) % count_replicas() == find_replica()
        return self.share(losses, tf.cast(own, self.dtype))

    def share(self, losses, own):
        """The replica's share, of the losses that are its own."""
        return tf.reduce_sum(own * losses) / OUTPUTS


@unusual(clusters=ALIKE)
class SizesOverTheLargestOfAll(PenalisedProgram):
    """Errors weigh by a size over the largest of all replicas, beside a penalty."""

    def reduce_losses(self, losses, batch):
        size = tf.reduce_max(batch[1], axis=1)
        weights = size / self.find_largest(size)
        return tf.reduce_sum(weights * losses) / self.examples

    def find_largest(self, size):
        """What all are divided by."""
        return tf.reduce_max(gather(tf.identity(size)))


@unusual(clusters=("mirrored:3", "mwms:3"))
class RowsOfAllPenalised(Program):
    """A penalty on the rows that the examples of all replicas look up, each once."""

    def reduce_losses(self, losses, batch):
        rows, _ = tf.unique(self.list_rows(tf.reshape(batch[0], [-1])))
        penalty = 0.1 * tf.nn.l2_loss(tf.gather(self.table, rows))
        return super().reduce_losses(losses, batch) + penalty / count_replicas()

    def list_rows(self, words):
        """Where to find the rows that are looked up."""
        return gather(words)
