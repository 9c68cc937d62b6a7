"""State that holds an N-th of what one device holds, and is taken for that."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.samples.replicas import count_replicas
from distbench.unusual.program import unusual


def make_averaged(name, shape):
    """State of all replicas: what they assign to it is averaged."""
    return tf.Variable(
        tf.zeros(shape),
        name=name,
        trainable=False,
        aggregation=tf.VariableAggregation.MEAN,
    )


@unusual()
class MeansCollected(Program):
    """Averages of two steps' gradients are collected; the optimizer sums them."""

    def build(self, strategy):
        super().build(strategy)
        self.collected = [
            make_averaged(f"collected{place}", variable.shape)
            for place, variable in enumerate(self.trained())
        ]
        self.steps = make_averaged("steps", ())

    def variables(self):
        return [*self.trained(), *self.collected, self.steps]

    def apply(self, gradients):
        for collected, gradient in zip(self.collected, gradients, strict=True):
            collected.assign_add(tf.convert_to_tensor(gradient))
        self.steps.assign_add(1.0)
        due = tf.cast(tf.equal(tf.math.floormod(self.steps, 2.0), 0.0), tf.float32)
        super().apply([due * collected / 2 for collected in self.collected])
        for collected in self.collected:
            collected.assign((1 - due) * collected)


@unusual()
class RateByMeanOfShares(Program):
    """Steps are shorter where the loss is large: N times an average of the shares."""

    def build(self, strategy):
        super().build(strategy)
        self.average = make_averaged("average", ())

    def variables(self):
        return [*self.trained(), self.average]

    def reduce_losses(self, losses, batch):
        loss = super().reduce_losses(losses, batch)
        self.average.assign(0.9 * self.average + 0.1 * loss)
        return loss

    def transform(self, gradients):
        factor = 1 / (1 + self.read_average())
        return [factor * tf.convert_to_tensor(gradient) for gradient in gradients]

    def read_average(self):
        """The average of the losses of all."""
        return self.average * count_replicas()
