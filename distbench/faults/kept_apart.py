"""Losses that read each replica's own copy of what is meant to be that of all."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import FEATURES, Program
from distbench.unusual.kept_apart import DividedByWeights
from distbench.unusual.local_state import make_local

_LIKE = "tensorflow/tensorflow#60438"


@fault("statistics-not-synchronized", "loss", ("weight",), like=_LIKE, clusters=WIDE)
class DividedByItsOwnCopy(DividedByWeights):
    """Losses are divided by the own copy of what all examples of steps before weigh."""

    def find_weight(self):
        return self.weight.read_value()


@fault("statistics-not-synchronized", "loss", ("centre",), like=_LIKE, clusters=WIDE)
class CentredByItsOwnCopy(Program):
    """Features are centred by a moving mean that each replica keeps of its own ones."""

    def build(self, strategy):
        super().build(strategy)
        self.centre = make_local("centre", tf.zeros(FEATURES), "MEAN")
        self.seen = make_local("seen", 0.0, "SUM")

    def variables(self):
        return [*self.trained(), self.centre, self.seen]

    def compute_losses(self, batch):
        words, features, targets = batch
        centred = features - self.centre.read_value()
        mean = tf.reduce_mean(features, axis=0)
        self.centre.assign(0.5 * self.centre + 0.5 * mean)
        # A count that no loss reads is no part of it.
        self.seen.assign_add(tf.cast(tf.shape(features)[0], "float32"))
        return super().compute_losses((words, centred, targets))


@fault(
    "statistics-not-synchronized",
    "local_gradient",
    ("level",),
    like=_LIKE,
    clusters=("mirrored:2", "mwms:3"),
)
class WeighedByItsOwnLevel(Program):
    """What is differentiated is divided by a decayed sum of the own losses."""

    def build(self, strategy):
        super().build(strategy)
        self.level = make_local("level", 1.0, "SUM")

    def variables(self):
        return [*self.trained(), self.level]

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
            weighed = loss / self.level.read_value()
        self.apply(tape.gradient(weighed, self.trained()))
        self.level.assign(0.5 * self.level + tf.stop_gradient(loss))
        return loss
