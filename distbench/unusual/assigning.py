"""Variables that the replicas assign to by themselves, and an aggregation joins it."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import ByHand, Program
from distbench.samples.replicas import count_replicas
from distbench.unusual.program import unusual


@unusual()
class OwnStepsAddedUp(ByHand):
    """Each replica takes its own step alone; the variables add these up."""

    def build(self, strategy):
        super().build(strategy)
        self.table, self.first, self.second, self.bias, self.head = (
            tf.Variable(
                tf.identity(variable),
                name=variable.name.split(":")[0],
                aggregation=tf.VariableAggregation.SUM,
            )
            for variable in self.trained()
        )

    def apply(self, gradients):
        for gradient, variable in zip(gradients, self.trained(), strict=True):
            self.move(variable, tf.convert_to_tensor(gradient))

    def move(self, variable, gradient):
        """One replica's part in a variable's step."""
        variable.assign_sub(self.rate * gradient)


@unusual()
class OwnPartsAddedUp(Program):
    """Each replica adds its own part less an N-th of what a decayed sum loses."""

    aggregation = "SUM"

    def build(self, strategy):
        super().build(strategy)
        self.weight = tf.Variable(
            2.0,
            name="weight",
            trainable=False,
            aggregation=getattr(tf.VariableAggregation, self.aggregation),
        )

    def variables(self):
        return [*self.trained(), self.weight]

    def compute_losses(self, batch):
        self.move(tf.reduce_sum(tf.abs(batch[1][:, 0])))
        return super().compute_losses(batch)

    def move(self, own):
        """One replica's part in a step of the sum."""
        self.weight.assign_add(own - 0.25 * self.weight / count_replicas())
