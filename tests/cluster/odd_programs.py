"""Train programs that break the contract, or keep it in an unusual way."""

from __future__ import annotations

import os
import time

import numpy as np
import tensorflow as tf
import tf_keras

legacy = tf_keras.optimizers.legacy


class Regression:
    """Correct: momentum SGD on a small regression."""

    examples = 8

    def build(self, strategy):
        rng = np.random.default_rng(0)
        self.kernel = tf.Variable(rng.normal(size=(4, 2)).astype("float32"), name="w")
        self._optimizer = legacy.SGD(0.1, momentum=0.5)

    def variables(self):
        return [self.kernel]

    def optimizer(self):
        return self._optimizer

    def data(self, step):
        return draw(np.random.default_rng(step), self.examples)

    def compute_loss(self, batch):
        features, targets = batch
        return tf.reduce_sum((features @ self.kernel - targets) ** 2) / self.examples

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.compute_loss(batch)
        gradient = tape.gradient(loss, self.kernel)
        self._optimizer.apply_gradients([(gradient, self.kernel)])
        return loss


class NamesItsOptimizers(Regression):
    """Correct: what trains stands in a dictionary, made anew each time."""

    def optimizer(self):
        return {"only": self._optimizer}


def draw(rng, examples):
    features = rng.normal(size=(examples, 4)).astype("float32")
    return features, rng.normal(size=(examples, 2)).astype("float32")


class LossOfOneElement(Regression):
    """Correct: a loss of shape [1] is a number all the same."""

    def replica_step(self, batch):
        return tf.reshape(super().replica_step(batch), [1])


class NamedByReplicas(Regression):
    """Its variable has another name on each cluster."""

    def build(self, strategy):
        super().build(strategy)
        start = tf.convert_to_tensor(self.kernel)
        name = f"w_of_{strategy.num_replicas_in_sync}"
        self.kernel = tf.Variable(start, name=name)


class CountsOnClusters(Regression):
    """It has a variable that there is on no single device."""

    def build(self, strategy):
        super().build(strategy)
        self.counters = []
        if strategy.num_replicas_in_sync > 1:
            self.counters = [tf.Variable(0.0, name="count")]

    def variables(self):
        return [self.kernel, *self.counters]

    def before_step(self, step):
        for counter in self.counters:
            counter.assign_add(1.0)


class DifferentiatesInside(Regression):
    """Correct: a function of its own gives loss and gradient."""

    @tf.function
    def differentiate(self, batch):
        with tf.GradientTape() as tape:
            loss = self.compute_loss(batch)
        return loss, tape.gradient(loss, self.kernel)

    def replica_step(self, batch):
        loss, gradient = self.differentiate(batch)
        self._optimizer.apply_gradients([(gradient, self.kernel)])
        return loss


class LossPerExample(Regression):
    def replica_step(self, batch):
        super().replica_step(batch)
        return batch[0][:, 0]


class LossAsText(Regression):
    def replica_step(self, batch):
        super().replica_step(batch)
        return "done"


class LossInDictionary(Regression):
    def replica_step(self, batch):
        return {"loss": super().replica_step(batch)}


class SmallerLastBatch(Regression):
    """Correct: the last of three batches has five examples, which weigh the same."""

    def data(self, step):
        return draw(np.random.default_rng(step), 8 if step < 2 else 5)


class LoneLastExample(Regression):
    """Correct: the last of three batches has one example, for one replica."""

    def data(self, step):
        return draw(np.random.default_rng(step), 8 if step < 2 else 1)


class MeanOfLastBatch(SmallerLastBatch):
    """The mean over the own shard, divided by N: right for even shards alone."""

    def compute_loss(self, batch):
        features, targets = batch
        n = tf.distribute.get_strategy().num_replicas_in_sync
        losses = tf.reduce_sum((features @ self.kernel - targets) ** 2, axis=1)
        return tf.reduce_mean(losses) / n


class ForReferenceVariables(tf.compat.v1.train.Optimizer):
    """Has the rules that TensorFlow 1 asked for, and TensorFlow 2 never does."""

    def __init__(self):
        super().__init__(use_locking=False, name="References")

    def _apply_dense(self, grad, var):
        return var.assign_sub(0.1 * grad)

    def _apply_sparse(self, grad, var):
        return var.scatter_sub(tf.IndexedSlices(0.1 * grad.values, grad.indices))


class ForDenseGradients(ForReferenceVariables):
    """Has one of the two rules that TensorFlow 2 asks for."""

    def _resource_apply_dense(self, grad, handle):
        return handle.assign_sub(0.1 * grad)


def make_for_references():
    return ForReferenceVariables()


def make_for_dense_gradients():
    return ForDenseGradients()


class DataRunsOut(Regression):
    def data(self, step):
        if step == 2:
            raise EOFError("no more data")
        return super().data(step)


class DataAsLists(Regression):
    def data(self, step):
        return [array.tolist() for array in super().data(step)]


class ExitsInBuild(Regression):
    def build(self, strategy):
        raise SystemExit("usage: train.py --rate RATE")


class RaisesWhenAsked(Regression):
    @property
    def loss_reduction(self):
        raise LookupError("not known before build")


class MakesOptimizerLate(Regression):
    _optimizer = None

    def build(self, strategy):
        super().build(strategy)
        self._optimizer = None

    def replica_step(self, batch):
        if self._optimizer is None:
            self._optimizer = legacy.SGD(0.1, momentum=0.5)
        return super().replica_step(batch)


class ListsVariablesByName(Regression):
    def variables(self):
        return {"kernel": self.kernel}


class ListsOneVariable(Regression):
    def variables(self):
        return self.kernel


class ListsNoVariables(Regression):
    def variables(self):
        return []


class GivesVariableTwice(Regression):
    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.compute_loss(batch)
        gradient = tape.gradient(loss, self.kernel)
        self._optimizer.apply_gradients([(gradient, self.kernel)] * 2)
        return loss


class DrawsAnew(Regression):
    """Every process draws other examples."""

    def data(self, step):
        return draw(np.random.default_rng(), self.examples)


class StartsAnywhere(Regression):
    """Correct: no seed governs where it starts."""

    def build(self, strategy):
        super().build(strategy)
        start = np.random.default_rng().normal(size=(4, 2))
        self.kernel = tf.Variable(start.astype("float32"), name="w")


class DrawsOn(Regression):
    """Correct: `data` goes on where it was, whatever the step is called."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def data(self, step):
        return draw(self.rng, self.examples)


class Dropout(Regression):
    """Random by intent: no run repeats another."""

    def compute_loss(self, batch):
        features, targets = batch
        return super().compute_loss((tf.nn.dropout(features, 0.5), targets))


class ExitsOnCluster(Regression):
    def replica_step(self, batch):
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise SystemExit(3)
        return super().replica_step(batch)


class MovesInBetween(Regression):
    """Correct: another update, of one loss for all, is made between the steps."""

    def before_step(self, step):
        strategy = tf.distribute.get_strategy()
        strategy.run(self.shrink, args=(strategy.num_replicas_in_sync,))

    def shrink(self, replicas):
        with tf.GradientTape() as tape:
            penalty = tf.reduce_sum(self.kernel**2) / replicas
        gradient = tape.gradient(penalty, self.kernel)
        self._optimizer.apply_gradients([(gradient, self.kernel)])


class RaisesWhenAskedAgain(Regression):
    """It can say which variables it has once only."""

    asked = 0

    def variables(self):
        self.asked += 1
        if self.asked > 1:
            raise LookupError("they were listed already")
        return super().variables()


class RaisesInBetween(Regression):
    def before_step(self, step):
        raise LookupError(f"nothing to do before step {step}")


class RepeatedAfterRestart(Regression):
    """The step is taken twice on a cluster; the slots are halved between the steps."""

    def build(self, strategy):
        super().build(strategy)
        self._optimizer = TwiceOnClusters(0.1, momentum=0.5)

    def before_step(self, step):
        counter, *slots = self._optimizer.get_weights()
        self._optimizer.set_weights([counter, *(0.5 * slot for slot in slots)])


class TwiceOnClusters(legacy.SGD):
    def _resource_apply_dense(self, grad, var, apply_state=None):
        done = super()._resource_apply_dense(grad, var, apply_state)
        if tf.distribute.get_strategy().num_replicas_in_sync == 1:
            return done
        with tf.control_dependencies([done]):
            return var.assign_add(self.get_slot(var, "momentum"))


class SlowWorker(Regression):
    """Correct: on a cluster the first replica sleeps in every step."""

    nap_s = 3.0

    def replica_step(self, batch):
        context = tf.distribute.get_replica_context()
        first = tf.get_static_value(context.replica_id_in_sync_group) == 0
        if first and context.num_replicas_in_sync > 1:
            nap = tf.py_function(lambda: time.sleep(self.nap_s) or 0.0, [], tf.float32)
            with tf.control_dependencies([nap]):
                batch = tf.nest.map_structure(tf.identity, batch)
        return super().replica_step(batch)


class MakesAVariableInItsStep(Regression):
    """A count that the first step makes, as one device may: TensorFlow refuses."""

    count = None

    def replica_step(self, batch):
        if self.count is None:
            self.count = tf.Variable(tf.constant(0.0), trainable=False)
        return super().replica_step(batch)


class SumsInAnotherOrder(Regression):
    """The second replica of a cluster sums its two parts the other way round."""

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.compute_loss(batch)
        context = tf.distribute.get_replica_context()
        number = tf.get_static_value(context.replica_id_in_sync_group)
        parts = [tape.gradient(loss, self.kernel), loss[None]]
        order = slice(None, None, -1 if number == 1 else 1)
        if context.num_replicas_in_sync > 1:
            parts = [context.all_reduce("sum", part) for part in parts[order]][order]
        self.kernel.assign_sub(0.1 * parts[0])
        return loss


class NamedByProcess(Regression):
    """Each process has another name for the same variable."""

    def build(self, strategy):
        super().build(strategy)
        self.kernel = tf.Variable(self.kernel, name=f"kernel_{os.getpid()}")


class SumsItsExamples(Regression):
    """What has a row for each example is summed, which takes shards of one size."""

    def replica_step(self, batch):
        context = tf.distribute.get_replica_context()
        if context.num_replicas_in_sync > 1:
            context.all_reduce("sum", batch[0])
        return super().replica_step(batch)


class AddsANumberWhereReplicasMeet(Regression):
    """A plain number for a variable that sums what replicas add: TensorFlow refuses."""

    def build(self, strategy):
        super().build(strategy)
        mode = tf.VariableAggregation.SUM
        self.steps = tf.Variable(0.0, trainable=False, aggregation=mode, name="steps")

    def variables(self):
        return [self.kernel, self.steps]

    def replica_step(self, batch):
        self.steps.assign_add(1.0)
        return super().replica_step(batch)
