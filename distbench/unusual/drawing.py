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
