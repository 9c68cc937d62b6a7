"""Correct steps that decide by the loss how far they go."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import ByHand
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
