"""Variables that the replicas assign to by themselves, and an aggregation joins it."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import ByHand
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
