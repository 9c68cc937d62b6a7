"""Unusual but correct losses that are made of state of the replicas' own."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import FEATURES, OUTPUTS, Program
from distbench.samples.replicas import all_reduce
from distbench.unusual.local_state import make_local
from distbench.unusual.program import unusual


class DividedByWeights(Program):
    """Losses are divided by the weights of all examples of the steps before."""

    read_as = "SUM"

    def build(self, strategy):
        super().build(strategy)
        self.weight = make_local("weight", 0.0, self.read_as)

    def variables(self):
        return [*self.trained(), self.weight]

    def reduce_losses(self, losses, batch):
        weights = tf.abs(batch[1][:, 0])
        total = tf.reduce_sum(weights * losses) / (1.0 + self.find_weight())
        self.weight.assign_add(self.count(tf.reduce_sum(weights)))
        return total

    def find_weight(self):
        """What all replicas have counted."""
        return all_reduce("sum", self.weight.read_value())

    def count(self, weight):
        """What a copy takes of the own examples' weight."""
        return weight


@unusual()
class DividedByAllCopies(DividedByWeights):
    """Each replica counts its own examples, and reads what all of them have."""


@unusual()
class EachCopyCountsAll(DividedByWeights):
    """Each replica counts the examples of all, and reads its own copy of that."""

    read_as = "ONLY_FIRST_REPLICA"

    def find_weight(self):
        return self.weight.read_value()

    def count(self, weight):
        return all_reduce("sum", weight)


@unusual()
class ScaledByItsOwn(Program):
    """A loss is scaled by what the replica has seen, and its gradient divided by it."""

    def build(self, strategy):
        super().build(strategy)
        self.scale = make_local("scale", 1.0, "MEAN")

    def variables(self):
        return [*self.trained(), self.scale]

    def replica_step(self, batch):
        scale = self.scale.read_value()
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
            scaled = loss * scale
        gradients = tape.gradient(scaled, self.trained())
        self.apply([tf.convert_to_tensor(g) / scale for g in gradients])
        self.scale.assign(0.5 * scale + tf.reduce_mean(tf.abs(batch[1])))
        return loss


@unusual(clusters=("mirrored:2",))
class RemembersItsOwn(Program):
    """What the first own examples came to is kept, and later ones are told from it."""

    def build(self, strategy):
        super().build(strategy)
        self.memory = make_local("memory", tf.eye(OUTPUTS), "MEAN")

    def variables(self):
        return [*self.trained(), self.memory]

    def compute_losses(self, batch):
        outputs = self.predict(batch)
        likeness = tf.matmul(outputs, self.memory.read_value(), transpose_b=True)
        self.memory.assign(tf.stop_gradient(tf.sort(outputs[-OUTPUTS:], axis=0)))
        return super().compute_losses(batch) + tf.reduce_logsumexp(likeness, axis=1)


@unusual()
class CentredByOneOfAll(Program):
    """Features are centred by a mean of all that each copy keeps a share of."""

    def build(self, strategy):
        super().build(strategy)
        self.share = make_local("share", tf.zeros(FEATURES), "SUM")

    def variables(self):
        return [*self.trained(), self.share]

    def compute_losses(self, batch):
        words, features, targets = batch
        centre = all_reduce("sum", self.share.read_value())
        own = tf.reduce_sum(features, axis=0) / self.examples
        self.share.assign(0.5 * self.share + 0.5 * own)
        return super().compute_losses((words, features - centre, targets))
