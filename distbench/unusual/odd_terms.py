"""Correct losses with a term of which repeated examples do not tell what it is."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.unusual.exchange import ALIKE
from distbench.unusual.program import unusual


@unusual()
class NormBesideShares(Program):
    """Beside shares of a mean stands the norm of each replica's own outputs."""

    def reduce_losses(self, losses, batch):
        outputs = self.predict(batch)
        return self.share(losses) + 0.1 * tf.norm(outputs) / count_replicas()

    def share(self, losses):
        """The replica's share of the mean."""
        return tf.reduce_sum(losses) / self.examples


@unusual(clusters=ALIKE)
class OneMoreThanHard(Program):
    """A term is divided by one more than there are hard examples on all replicas."""

    def reduce_losses(self, losses, batch):
        hard = tf.cast(losses > 1.0, self.dtype)
        count = self.count(tf.reduce_sum(hard)) + 1.0
        return super().reduce_losses(losses, batch) + self.join(losses, hard) / count

    def join(self, losses, hard):
        """The losses of hard examples."""
        return tf.reduce_sum(hard * losses)

    def count(self, hard):
        """How many there are on all replicas."""
        return all_reduce("sum", hard)


@unusual(clusters=ALIKE)
class SlopesAroundTheMeanOfAll(Program):
    """Slopes of the outputs by the inputs are drawn to their mean over all replicas."""

    def compute_losses(self, batch):
        words, features, targets = batch
        with tf.GradientTape() as tape:
            tape.watch(features)
            outputs = tf.reduce_sum(self.predict((words, features)))
        slopes = tf.norm(tape.gradient(outputs, features), axis=1)
        middle = tf.stop_gradient(self.find_mean(slopes))
        errors = (self.predict(batch) - targets) ** 2
        return tf.reduce_sum(errors, axis=1) + (slopes - middle) ** 2

    def find_mean(self, slopes):
        """The mean over all replicas."""
        return all_reduce("sum", tf.reduce_sum(slopes)) / self.examples


@unusual(clusters=("mwms:2",))
class MasksSeededBySteps(Program):
    """Replicas mask units by draws that are seeded by their number and the step's."""

    def build(self, strategy):
        super().build(strategy)
        self.optimizer().iterations  # noqa: B018  # makes it before the step is traced

    def predict(self, batch):
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        hidden = tf.tanh(embedded @ self.first + features @ self.second + self.bias)
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        step = tf.cast(self.optimizer().iterations, tf.int32)
        seed = tf.stack([step, tf.cast(replica, tf.int32)])
        kept = tf.random.stateless_uniform(tf.shape(hidden), seed) < 0.8
        return tf.where(kept, hidden / 0.8, 0.0) @ self.head
