"""Correct programs with a copy that follows what trains."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.samples.replicas import update
from distbench.samples.teacher import Taught
from distbench.unusual.program import unusual


@unusual()
class FollowsEverySecondStep(Program):
    """A copy takes the head's value in every second step, as a target network does."""

    def build(self, strategy):
        super().build(strategy)
        kept = {
            "trainable": False,
            "aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA,
        }
        self.target = tf.Variable(self.head.read_value() / 2, name="target", **kept)
        self.taken = tf.Variable(0, name="taken", **kept)

    def variables(self):
        return [*self.trained(), self.target, self.taken]

    def apply(self, gradients):
        super().apply(gradients)
        self.taken.assign_add(self.count_steps())
        is_due = self.taken % self.find_period() == 0
        self.target.assign(tf.where(is_due, self.head, self.target))

    def count_steps(self):
        return 1

    def find_period(self):
        return 2


@unusual()
class TaughtByItsAverage(Taught):
    """The step begins with a teacher that goes a part of the way to the head."""


@unusual()
class AveragesWhatItLeaves(Program):
    """An average goes a part of the way to the head, once the head has its update."""

    def build(self, strategy):
        super().build(strategy)
        start = tf.identity(self.head)
        self.average = tf.Variable(start, name="average", trainable=False)

    def variables(self):
        return [*self.trained(), self.average]

    def apply(self, gradients):
        super().apply(gradients)
        update(self.average, self.move, self.read_head())

    def read_head(self):
        return tf.identity(self.head)

    def move(self, copy, value):
        copy.assign(0.9 * copy + 0.1 * value)


@unusual()
class FollowsInOwnCopies(Taught):
    """Every replica has a teacher of its own, which goes on after the head's update."""

    def build(self, strategy):
        super().build(strategy)
        self.teacher = tf.Variable(
            tf.identity(self.head),
            name="teacher",
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def apply(self, gradients):
        super().apply(gradients)
        share = (1 - self.kept) * self.count_followers()
        self.teacher.assign((1 - share) * self.teacher + share * self.head)

    def follow(self):
        """The teacher stays until the update."""

    def count_followers(self):
        return 1.0


@unusual()
class OwnTeacherBesideOwnStatistics(FollowsInOwnCopies):
    """Such teachers, and examples that are centred by the mean of their shard."""

    def compute_losses(self, batch):
        words, features, targets = batch
        features = features - tf.reduce_mean(features, axis=0)
        return super().compute_losses((words, features, targets))
