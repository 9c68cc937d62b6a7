"""Unusual but correct steps: the loss decides how far they go, or whether at all."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import ByHand, Program
from distbench.samples.replicas import all_reduce
from distbench.unusual.program import unusual


@unusual()
class HalvesStepsOfSmallLosses(ByHand):
    """A step by hand is half as long where the loss of all is small."""

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
        part = tf.where(self.measure(loss) > 3.62, 1.0, 0.5)
        gradients = tape.gradient(loss, self.trained())
        for gradient, variable in zip(gradients, self.trained(), strict=True):
            total = self.reduce(tf.convert_to_tensor(gradient))
            self.update(variable, part * total)
        return loss

    def measure(self, loss):
        """The loss of all."""
        return self.reduce(loss)


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
