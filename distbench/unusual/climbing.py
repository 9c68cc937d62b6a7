"""Correct steps that differentiate by values which are made of the variables."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.samples.replicas import all_reduce
from distbench.unusual.exchange import ALIKE
from distbench.unusual.program import unusual


@unusual(clusters=ALIKE)
class ClimbsOnValues(Program):
    """Sharpness-aware, without moving a variable: tapes watch values up the slope."""

    def replica_step(self, batch):
        values = [tf.convert_to_tensor(variable) for variable in self.trained()]
        loss, gradients = self.differentiate(values, batch)
        summed = all_reduce("sum", gradients)
        norm = self.measure(gradients, summed)
        above = [v + 0.3 * way / norm for v, way in zip(values, summed, strict=True)]
        _, gradients = self.differentiate(above, batch)
        self.apply(gradients)
        return loss

    def measure(self, own, summed):
        """The norm that the way up is divided by."""
        del own
        return tf.linalg.global_norm(summed)

    def differentiate(self, values, batch):
        """The replica's loss at some values of the variables, and its gradients."""
        table, first, second, bias, head = values
        with tf.GradientTape() as tape:
            tape.watch(values)
            embedded = tf.reduce_mean(tf.nn.embedding_lookup(table, batch[0]), axis=1)
            hidden = tf.tanh(embedded @ first + batch[1] @ second + bias)
            losses = tf.reduce_sum((hidden @ head - batch[2]) ** 2, axis=1)
            loss = self.reduce_losses(losses, batch)
        found = tape.gradient(loss, values)
        return loss, [tf.convert_to_tensor(gradient) for gradient in found]
