"""Unusual but correct steps: one whose loss is too large is left out."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.samples.replicas import all_reduce
from distbench.unusual.program import unusual


@unusual()
class LeavesSpikesOut(Program):
    """The loss of the global batch decides whether its gradients count."""

    largest = 2.9

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
        gradients = tape.gradient(loss, self.trained())
        counts = tf.cast(self.measure(loss) < self.largest, loss.dtype)
        self.apply([counts * tf.convert_to_tensor(value) for value in gradients])
        return loss

    def measure(self, loss):
        """What may not be too large."""
        return all_reduce("sum", loss)
