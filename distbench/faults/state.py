"""Mistakes before the first step, in statistics, and code that raises."""

from __future__ import annotations

import numpy as np

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.optimizers import OwnRule, optimizer
from distbench.samples.program import FEATURES, HEAD, TRAINED, Program
from distbench.samples.replicas import all_reduce, count_replicas, find_copy


@fault(
    "initial-value-differs",
    "variable",
    (HEAD,),
    like="keras-team/keras#18972",
    clusters=WIDE,
)
class HeadScaledByReplicas(Program):
    """An initial value is scaled with the number of replicas."""

    def build(self, strategy):
        super().build(strategy)
        self.head.assign(self.head * count_replicas())


@fault(
    "initial-value-differs",
    "variable",
    TRAINED,
    like="horovod/horovod#895",
    replicas=(1,),
)
class EveryCopyDrawsItsOwn(Program):
    """The first worker's values are not broadcast: each copy draws its own."""

    def build(self, strategy):
        super().build(strategy)
        for variable in self.trained():
            for copy in getattr(variable, "values", [variable]):
                rng = np.random.default_rng(find_copy(copy))
                if find_copy(copy) > 0:
                    copy.assign(rng.normal(size=copy.shape).astype("float32"))


class Statistics(Program):
    """A moving mean of the features, as batch normalisation keeps it."""

    aggregation, synchronization = "MEAN", "AUTO"
    kept = "float32"

    def build(self, strategy):
        super().build(strategy)
        self.moving = tf.Variable(
            np.zeros(FEATURES, self.kept),
            name="moving/mean",
            trainable=False,
            aggregation=getattr(tf.VariableAggregation, self.aggregation),
            synchronization=getattr(tf.VariableSynchronization, self.synchronization),
        )

    def variables(self):
        return [*self.trained(), self.moving]

    def replica_step(self, batch):
        loss = super().replica_step(batch)
        features = tf.cast(batch[1], self.kept)
        self.moving.assign(0.9 * self.moving + 0.1 * self.measure(features))
        return loss

    def measure(self, features):
        return tf.reduce_mean(features, axis=0)


@fault(
    "statistics-not-synchronized",
    "variable",
    ("moving/mean",),
    like="tensorflow/tensorflow#60438",
    clusters=WIDE,
)
class StatisticsOfFirstReplica(Statistics):
    """The moving mean is that of replica 0's examples."""

    aggregation = "ONLY_FIRST_REPLICA"


@fault(
    "statistics-not-synchronized",
    "variable",
    ("moving/mean",),
    like="tensorflow/tensorflow#60438",
    clusters=WIDE,
    replicas=(0,),
)
class OwnStatisticsReadAsFirst(Statistics):
    """Every replica keeps a moving mean of its own; replica 0's is read and saved."""

    aggregation, synchronization = "ONLY_FIRST_REPLICA", "ON_READ"


@fault(
    "statistics-not-synchronized",
    "variable",
    ("moving/mean",),
    like="tensorflow/tensorflow#60438",
    clusters=("mirrored:2", "mwms:3"),
)
class MeansAddedUp(Statistics):
    """What each replica assigns is added up, and not averaged."""

    aggregation = "SUM"


@fault(
    "statistics-not-synchronized",
    "variable",
    ("moving/mean",),
    like="pytorch/pytorch#22192",
    clusters=WIDE,
)
class VarianceWithoutMeans(Statistics):
    """The moving variance is the mean of the shards' own variances."""

    def measure(self, features):
        return tf.math.reduce_variance(features, axis=0)


class StatisticsOfAll(Statistics):
    """The mean of all examples, which every replica has from their sum."""

    aggregation = "ONLY_FIRST_REPLICA"

    def measure(self, features):
        return self.add_up(tf.reduce_sum(features, axis=0)) / self.examples

    def add_up(self, own):
        return all_reduce("sum", own)


@fault(
    "lower-precision",
    "variable",
    ("moving/mean",),
    like="horovod/horovod#3786",
    clusters=WIDE,
    warning=True,
)
class StatisticsSentInBfloat16(StatisticsOfAll):
    """What the examples add to a moving mean travels as bfloat16."""

    sent = "bfloat16"

    def add_up(self, own):
        if count_replicas() == 1:
            return own
        return tf.cast(super().add_up(tf.cast(own, self.sent)), own.dtype)


@fault(
    "stale-read",
    "variable",
    ("moving/mean",),
    like="sql-machine-learning/elasticdl#89",
    clusters=WIDE,
)
class StatisticsOfStepBefore(StatisticsOfAll):
    """The sum of statistics overlaps with the next step, which takes the last one's."""

    def build(self, strategy):
        super().build(strategy)
        self.pending = tf.Variable(
            np.zeros(FEATURES, "float32"),
            name="pending",
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def measure(self, features):
        mean = super().measure(features)
        if count_replicas() == 1:
            return mean
        held = tf.identity(self.pending)
        self.pending.assign(mean)
        return held


class Centred(Statistics):
    """The features are centred by the moving mean, before it trains the model."""

    def replica_step(self, batch):
        words, features, targets = batch
        self.moving.assign(0.9 * self.moving + 0.1 * self.measure(features))
        centred = (words, features - self.moving, targets)
        return Program.replica_step(self, centred)


@fault(
    "statistics-not-synchronized",
    "variable",
    ("moving/mean",),
    like="tensorflow/tensorflow#60438",
    clusters=WIDE,
)
class CentredByFirstReplica(Centred):
    """The features of all replicas are centred by the mean of replica 0's."""

    aggregation = "ONLY_FIRST_REPLICA"


@fault(
    "statistics-not-synchronized",
    "variable",
    ("scale",),
    like="tensorflow/tensorflow#60438",
    clusters=WIDE,
)
class ErrorScaleOfFirstReplica(Program):
    """Errors are divided by a moving scale of them, which replica 0 alone measures."""

    def build(self, strategy):
        super().build(strategy)
        # Nothing says that it is not trained; no gradient reaches it.
        self.scale = tf.Variable(
            1.0,
            name="scale",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def variables(self):
        return [*self.trained(), self.scale]

    def compute_losses(self, batch):
        losses = super().compute_losses(batch)
        seen = tf.stop_gradient(tf.reduce_mean(losses))
        self.scale.assign(0.9 * self.scale + 0.1 * seen)
        return losses / tf.stop_gradient(self.scale)


@fault(
    "mean-instead-of-sum",
    "variable",
    ("least",),
    like="keras-team/keras#20541",
    clusters=("mirrored:2", "mwms:3"),
)
class LeastOfOwnShares(Program):
    """The least loss so far is that of the own shares, which are averaged."""

    def build(self, strategy):
        super().build(strategy)
        self.least = tf.Variable(
            1e9,
            name="least",
            trainable=False,
            aggregation=tf.VariableAggregation.MEAN,
        )

    def variables(self):
        return [*self.trained(), self.least]

    def report(self, loss):
        self.least.assign(tf.minimum(self.least, loss))
        return loss


@fault("raises", "loss", like="tensorflow/tensorflow#36153", clusters=WIDE)
class EvenShardsExpected(Program):
    """The shard is reshaped to the size of an even one."""

    def compute_losses(self, batch):
        words, features, targets = batch
        count = count_replicas()
        size = self.examples // count if count > 1 else -1
        features = tf.reshape(features, [size, FEATURES])
        return super().compute_losses((words, features, targets))


@fault(
    "raises",
    "applied_gradient",
    like="tensorflow/addons#605",
    clusters=("mirrored:2",),
    replicas=(1,),
    workload="embedding",
)
@optimizer("Optimizer", "OwnRule")
class StateByName(OwnRule):
    """State is looked up by the variable's name, which copies do not share."""

    def create_slots(self, variable):
        super().create_slots(variable)
        self.__dict__.setdefault("_rates", {})[variable.name] = self.rate

    def update_variable(self, var, slot, grad):
        return var.assign_sub(self.__dict__["_rates"][var.name] * slot)


@fault(
    "raises",
    "loss",
    like="tensorflow/tensorflow#36153",
    replicas=(1,),
)
class EvenShardAsserted(Program):
    """An assertion that runs with the step wants as many examples of each replica."""

    def compute_losses(self, batch):
        known = tf.math.count_nonzero(tf.math.is_finite(batch[2][:, 0]))
        even = self.examples // count_replicas()
        tf.debugging.assert_greater_equal(known, tf.cast(even, known.dtype))
        return super().compute_losses(batch)


@fault(
    "raises",
    "local_gradient",
    like="tensorflow/tensorflow#37765",
    clusters=("mirrored:2",),
)
class SumInsideCondition(Program):
    """Gradients are summed inside a condition, where no replica may wait."""

    def transform(self, gradients):
        if count_replicas() == 1:
            return gradients
        return tf.cond(
            tf.reduce_sum(gradients[-1]) > 1e9,
            lambda: all_reduce("sum", [tf.convert_to_tensor(g) for g in gradients]),
            lambda: [tf.convert_to_tensor(g) for g in gradients],
        )


@fault(
    "raises",
    "build",
    like="tensorflow/tensorflow#37765",
    clusters=("mirrored:2",),
    replicas=(),
)
class SumWhereNoReplicaRuns(Program):
    """What replicas are to sum is summed where the model is built, and none runs."""

    def build(self, strategy):
        super().build(strategy)
        context = tf.distribute.get_replica_context()
        self.start = context.all_reduce("sum", tf.zeros([]))
