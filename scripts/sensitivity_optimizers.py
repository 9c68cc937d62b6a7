"""The optimizers that are measured: right ones, and one with an error in its code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planting import Plant, Rule

RATE, MOMENTUM = 0.1, 0.9
RULES = {
    "sgd": Rule(rate=RATE),
    "momentum": Rule(rate=RATE, momentum=MOMENTUM),
}


def make_optimizer(name: str) -> Callable[[], Any]:
    """A factory of a Keras optimizer with a simple rule."""
    momentum = RULES[name].momentum

    def factory() -> Any:
        import tf_keras

        return tf_keras.optimizers.legacy.SGD(RATE, momentum=momentum)

    return factory


def make_planted(plant: Plant) -> Callable[[], Any]:
    """A factory of momentum with an error in its code, which one device escapes."""
    phase, step, wanted = plant.phase, plant.step, plant.variable
    factor, element, error = plant.factor, plant.element, plant.error

    def factory() -> Any:
        import tensorflow as tf
        import tf_keras

        class Planted(tf_keras.optimizers.legacy.SGD):  # type: ignore[misc]  # untyped
            def spoil(self, here: str, value: Any, variable: Any) -> Any:
                several = tf.distribute.get_strategy().num_replicas_in_sync > 1
                name = variable.name.partition(":")[0].partition("/replica_")[0]
                if here != phase or name != wanted or not several:
                    return value
                wide = tf.cast(value, tf.float64) * factor
                if element is not None:
                    size = wide.shape.num_elements()
                    one = tf.one_hot(element, size, dtype=tf.float64)
                    wide += error * tf.reshape(one, wide.shape)
                spoiled = tf.cast(wide, value.dtype)
                return tf.where(tf.equal(self.iterations, step), spoiled, value)

            def spoil_all(self, here: str, pairs: Any) -> Any:
                return [(self.spoil(here, g, v), v) for g, v in pairs]

            def _aggregate_gradients(self, grads_and_vars: Any) -> Any:
                pairs = list(grads_and_vars)
                sums = super()._aggregate_gradients(pairs)
                return self.spoil_all("reduced_gradient", sums)

            def _transform_gradients(self, grads_and_vars: Any) -> Any:
                pairs = super()._transform_gradients(grads_and_vars)
                return self.spoil_all("applied_gradient", pairs)

            def _resource_apply_dense(
                self, grad: Any, var: Any, apply_state: Any = None
            ) -> Any:
                del apply_state
                slot = self.get_slot(var, "momentum")
                moved = MOMENTUM * slot - RATE * grad
                slot.assign(self.spoil("slot", moved, var))
                return var.assign(self.spoil("variable", var + slot, var))

        return Planted(RATE, momentum=MOMENTUM)

    return factory
