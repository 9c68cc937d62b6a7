"""Unusual but correct steps that draw other random numbers each time they run."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import BUFFERS, PenalisedProgram, Program
from distbench.unusual.grouping import Dropout
from distbench.unusual.program import unusual


@unusual()
class NoisyByGenerator(Program):
    """Noise on the features, from a generator with a state for each replica."""

    def build(self, strategy):
        super().build(strategy)
        self.generator = tf.random.Generator.from_seed(3)

    def predict(self, batch):
        words, features, targets = batch
        noise = self.generator.normal(tf.shape(features), stddev=0.3)
        return super().predict((words, features + noise, targets))


@unusual(clusters=("mirrored:2", "mwms:2"))
class NoisyInTurns(Program):
    """Noise on the features, drawn for one example after the other."""

    def predict(self, batch):
        words, features, targets = batch
        noisy = tf.map_fn(
            lambda row: row + 0.3 * tf.random.normal(tf.shape(row)), features
        )
        return super().predict((words, noisy, targets))


@unusual(clusters=("mirrored:2", "mwms:2"))
class BranchesByChance(Program):
    """Half of the time all examples of a replica count more."""

    def compute_losses(self, batch):
        losses = super().compute_losses(batch)
        if tf.random.uniform([]) < 0.5:
            losses = 1.5 * losses
        return losses


@unusual()
class PenalisedUnderDropout(Dropout, PenalisedProgram):
    """Dropout and a penalty of which every replica takes an equal share."""


@unusual(clusters=("mirrored:2", "mwms:2"))
class MasksThatAgree(PenalisedProgram):
    """Each example is masked twice, and both outputs have to agree.

    Attributes:
        examples: So few that masks of a shard have the shape of a variable.
    """

    examples = 12

    def compute_losses(self, batch):
        first, second = self.pass_twice(batch)
        errors = tf.reduce_sum((first - batch[2]) ** 2, axis=1)
        self.apart = tf.reduce_sum((first - second) ** 2, axis=1)
        return errors + self.share_apart(self.apart)

    def pass_twice(self, batch):
        """Two outputs for each example, under masks of its own."""
        hidden = self.activate(batch)
        return self.mask(hidden) @ self.head, self.mask(hidden) @ self.head

    def activate(self, batch):
        """What the last layer is given: [n, hidden]."""
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        return tf.tanh(embedded @ self.first + features @ self.second + self.bias)

    def mask(self, hidden):
        """Some of the numbers, as large as all."""
        return tf.nn.dropout(hidden, 0.3)

    def share_apart(self, apart):
        """What each example adds to the losses."""
        return apart


@unusual(clusters=("mirrored:2", "mwms:2"))
class TwoPassesInOne(MasksThatAgree):
    """The batch is masked twice in one pass, one copy after the other."""

    def pass_twice(self, batch):
        hidden = self.activate(batch)
        stacked = self.mask(tf.concat([hidden, hidden], 0)) @ self.head
        return tf.split(stacked, 2)


@unusual(clusters=("mirrored:2", "mwms:2"))
class CopiesSideBySide(MasksThatAgree):
    """Each example is masked twice, one copy beside the other."""

    def pass_twice(self, batch):
        repeated = tf.repeat(self.activate(batch), 2, axis=0)
        outputs = self.mask(repeated) @ self.head
        return outputs[::2], outputs[1::2]


@unusual(clusters=("mirrored:2", "mwms:2"))
class FollowedUnderNoise(NoisyByGenerator):
    """Noise on the features, and copies that go a tenth of the way to the weights."""

    def build(self, strategy):
        super().build(strategy)
        self.copies = [
            tf.Variable(
                variable,
                trainable=False,
                name=name,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            for name, variable in zip(BUFFERS, self.trained(), strict=True)
        ]

    def variables(self):
        return [*super().variables(), *self.copies]

    def apply(self, gradients):
        super().apply(gradients)
        for copy, variable in zip(self.copies, self.trained(), strict=True):
            self.follow(copy, variable)

    def follow(self, copy, variable):
        copy.assign_add(0.1 * (variable - copy))
