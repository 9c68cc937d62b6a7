"""Unusual but correct steps: how a program computes and applies its gradients."""

from __future__ import annotations

import numpy as np

from distbench.samples.lazy import legacy, tf
from distbench.samples.program import OwnReduction, Program
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.unusual.program import unusual


@unusual()
class MicroSteps(Program):
    """Gradients of three parts of the shard are added up before one update."""

    parts = 3

    def replica_step(self, batch):
        total, loss = None, 0.0
        for number in range(self.parts):
            share, dense = self.differentiate(batch, number)
            total = self.add(total, dense) if total else dense
            loss += share
        self.apply(self.transform(total))
        return loss

    def differentiate(self, batch, number):
        """Loss and gradients of one part."""
        part = [array[number :: self.parts] for array in batch]
        with tf.GradientTape() as tape:
            share = self.reduce_losses(self.compute_losses(part), part)
        found = tape.gradient(share, self.trained())
        return share, [tf.convert_to_tensor(gradient) for gradient in found]

    def add(self, total, gradients):
        """What is accumulated with those of one more part."""
        return [a + b for a, b in zip(total, gradients, strict=True)]


@unusual()
class MicroStepsInLoop(MicroSteps):
    """The parts are the passes of a loop that is one op of the graph."""

    def replica_step(self, batch):
        total = [tf.zeros_like(variable) for variable in self.trained()]
        loss = tf.zeros([])
        for number in tf.range(self.parts):
            share, dense = self.differentiate(batch, number)
            total = self.add(total, dense)
            loss += share
        self.apply(self.transform(total))
        return loss


@unusual()
class CountedMicroSteps(MicroSteps):
    """The same of a mean over the examples of all replicas that count."""

    def replica_step(self, batch):
        self._count = all_reduce("sum", tf.reduce_sum(self.weigh(batch)))
        return super().replica_step(batch)

    def weigh(self, batch):
        """1 of an example that counts, else 0: [n]."""
        return tf.cast(batch[0][:, 0] > 1, tf.float32)

    def reduce_losses(self, losses, batch):
        return tf.reduce_sum(losses * self.weigh(batch)) / self._count


@unusual()
class MicroStepsClippedTogether(OwnReduction, MicroSteps):
    """What all replicas add up in their micro-steps is clipped."""

    def reduce(self, gradients):
        return tf.clip_by_global_norm(super().reduce(gradients), 0.05)[0]


@unusual()
class TwoOptimizers(Program):
    """The table has an optimizer of its own."""

    def make_optimizer(self):
        return [legacy.Adagrad(0.05), legacy.Adam(0.01)]

    def apply(self, gradients):
        pairs = list(zip(gradients, self.trained(), strict=True))
        sparse, dense = self._optimizer
        sparse.apply_gradients(pairs[:1])
        dense.apply_gradients(pairs[1:])


@unusual(clusters=("mirrored:2", "ps:2+1"))
class BiasNotHandedOver(Program):
    """The optimizer is not handed one of the variables, which has a gradient."""

    def make_optimizer(self):
        return legacy.SGD(0.05)

    def apply(self, gradients):
        pairs = zip(gradients, self.trained(), strict=True)
        self._optimizer.apply_gradients([(g, v) for g, v in pairs if self.is_taken(v)])

    def is_taken(self, variable):
        """Whether the optimizer is handed a variable."""
        return variable is not self.bias


@unusual()
class TwoCalls(Program):
    """One optimizer is called twice in a step, for different variables."""

    def apply(self, gradients):
        pairs = list(zip(gradients, self.trained(), strict=True))
        self._optimizer.apply_gradients(pairs[:2])
        self._optimizer.apply_gradients(pairs[2:])


@unusual()
class InTurn(Program):
    """Two networks in turn, as in a GAN: the second one sees what the first became."""

    def make_optimizer(self):
        return [legacy.SGD(0.05, momentum=0.9), legacy.Adam(0.01)]

    def replica_step(self, batch):
        body, heads = self.trained()[:-1], self.trained()[-1:]
        loss = self.take_turn(body, self.optimizer()[0], batch, self.reduce_losses)
        return loss + self.take_turn(
            heads, self.optimizer()[1], batch, self.reduce_again
        )

    def take_turn(self, variables, optimizer, batch, reduce):
        with tf.GradientTape() as tape:
            loss = reduce(self.compute_losses(batch), batch)
        gradients = tape.gradient(loss, variables)
        if optimizer is self.optimizer()[1]:
            gradients = self.transform_again(gradients)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    def transform_again(self, gradients):
        return gradients

    def reduce_again(self, losses, batch):
        return super().reduce_losses(losses, batch)


@unusual()
class SortedVariables(Program):
    """Pairs are sorted by the names of their variables."""

    def apply(self, gradients):
        pairs = list(zip(gradients, self.trained(), strict=True))
        self._optimizer.apply_gradients(sorted(pairs, key=lambda pair: pair[1].name))


@unusual()
class TiedVariable(Program):
    """The table is also the first layer of the features, so two gradients meet."""

    def predict(self, batch):
        outputs = super().predict(batch)
        return outputs + batch[1] @ tf.transpose(self.table[:3])


@unusual()
class Minimised(Program):
    """minimize() of the optimizer, with a function."""

    def replica_step(self, batch):
        def compute():
            return self.reduce_losses(self.compute_losses(batch), batch)

        self._optimizer.minimize(compute, self.trained())
        return compute()


@unusual()
class NestedFunction(Program):
    """The losses are computed in a tf.function of their own."""

    def build(self, strategy):
        super().build(strategy)
        self.nested = tf.function(super().compute_losses)

    def compute_losses(self, batch):
        return self.nested(batch)


@unusual()
class LoopInTheStep(Program):
    """The outputs are computed by a while loop that iterates a fixed point."""

    def predict(self, batch):
        hidden = batch[1] @ self.second + self.bias
        state = tf.zeros_like(hidden)
        for _ in tf.range(3):
            state = 0.5 * tf.tanh(hidden + state)
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, batch[0]), axis=1)
        return (state + embedded @ self.first) @ self.head


@unusual()
class DoublePrecision(Program):
    """Everything is float64."""

    dtype = "float64"


@unusual()
class DictionaryBatches(Program):
    """A batch is a dictionary."""

    def data(self, step):
        words, features, targets = super().data(step)
        return {"words": words, "x": features, "y": targets}

    def replica_step(self, batch):
        return super().replica_step((batch["words"], batch["x"], batch["y"]))


@unusual()
class FrozenVariable(Program):
    """One variable has no gradient and is left out."""

    def trained(self):
        return [v for v in super().trained() if v is not self.first]

    def variables(self):
        return super().trained()


@unusual()
class ScaledPenalty(Program):
    """An L2 penalty of which every replica takes its share."""

    def compute_penalty(self):
        return 0.1 * tf.reduce_sum(self.head**2)

    def share_penalty(self, penalty):
        return tf.nn.scale_regularization_loss(penalty)


@unusual()
class SignOfScaledGradient(Program):
    """A sign rule: the scale of the loss does not matter to it."""

    def make_optimizer(self):
        return legacy.SGD(0.01, gradient_transformers=[self.take_signs])

    @staticmethod
    def take_signs(pairs):
        return [(tf.sign(tf.convert_to_tensor(g)), v) for g, v in pairs]

    def transform(self, gradients):
        return [tf.convert_to_tensor(g) * count_replicas() for g in gradients]


@unusual()
class Centralised(Program):
    """The mean of a gradient's columns is taken out on each replica: it is linear."""

    def transform(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return [
            g - tf.reduce_mean(g, axis=0, keepdims=True) if len(g.shape) > 1 else g
            for g in dense
        ]


@unusual()
class MovingStatistics(Program):
    """Sums over all replicas feed a moving mean."""

    def build(self, strategy):
        super().build(strategy)
        self.moving = tf.Variable(
            np.zeros(4, "float32"),
            name="moving/mean",
            trainable=False,
            aggregation=tf.VariableAggregation.SUM,
        )

    def variables(self):
        return [*self.trained(), self.moving]

    def replica_step(self, batch):
        loss = super().replica_step(batch)
        part = tf.reduce_sum(batch[1], axis=0) / self.examples
        # What is assigned is the sum over the replicas, so each gives its share.
        share = 0.9 * self.moving / count_replicas()
        self.moving.assign(share + 0.1 * part)
        return loss


@unusual()
class CountsForItself(Program):
    """A counter that no list names leads the length of the step."""

    aggregation = "ONLY_FIRST_REPLICA"

    def build(self, strategy):
        super().build(strategy)
        self.count = tf.Variable(
            0.0,
            name="count",
            trainable=False,
            aggregation=getattr(tf.VariableAggregation, self.aggregation),
        )

    def transform(self, gradients):
        part = tf.minimum(1.0, (self.count + 1.0) / 16.0)
        return [tf.convert_to_tensor(g) * part for g in gradients]

    def apply(self, gradients):
        super().apply(gradients)
        self.count.assign_add(tf.ones([]))


@unusual(clusters=("mirrored:2", "ps:2+1"))
class ScoresOfCritic(Program):
    """A loss is linear in the last layer, whose gradient needs none of its weights."""

    def compute_losses(self, batch):
        return tf.reduce_sum(self.predict(batch) * batch[2], axis=1)

    def replica_step(self, batch):
        super().replica_step(batch)
        return super().replica_step(batch)
