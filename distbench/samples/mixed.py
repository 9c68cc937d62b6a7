"""A correct train program in mixed precision, with a loss scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from distbench.samples.lazy import keras, legacy, tf
from distbench.samples.replicas import all_reduce, count_replicas, update

KERNEL, BIAS = "layer/kernel", "layer/bias"
MIXED = (KERNEL, BIAS, "head")


class MixedProgram:
    """A layer computed in a half-precision dtype; variables and updates in float32.

    Attributes:
        loss_reduction: How the returned losses combine.
        examples: Size of the global batch, G.
        policy: Keras' dtype policy.
        scale: The loss scale to start with; a power of two.
    """

    loss_reduction: str | None = "sum"
    examples = 22
    policy = "mixed_float16"
    scale = 1024.0

    def build(self, strategy: Any) -> None:
        """Make variables and optimizer."""
        del strategy
        rng = np.random.default_rng(5)
        start = keras.initializers.Constant(rng.normal(size=(4, 5), scale=0.4))
        self.layer = keras.layers.Dense(
            5, "tanh", kernel_initializer=start, dtype=self.policy, name="layer"
        )
        with tf.name_scope("layer"):
            self.layer.build([None, 4])
        head = rng.normal(size=(5, 3), scale=0.4).astype("float32")
        self.head = tf.Variable(head, name="head")
        self._optimizer = self.make_optimizer()

    def make_optimizer(self) -> Any:
        """An optimizer under a loss scale."""
        return keras.mixed_precision.LossScaleOptimizer(
            legacy.SGD(0.05, momentum=0.9), initial_scale=self.scale
        )

    def variables(self) -> list[Any]:
        """Everything that the model consists of."""
        return self.trained()

    def trained(self) -> list[Any]:
        """What the loss is differentiated by."""
        return [*self.layer.variables, self.head]

    def optimizer(self) -> Any:
        """What `make_optimizer` made."""
        return self._optimizer

    def data(self, step: int) -> Any:
        """Features and targets of the global batch."""
        rng = np.random.default_rng(step + 100)
        features = rng.normal(size=(self.examples, 4)).astype("float32")
        return features, rng.normal(size=(self.examples, 3)).astype("float32")

    def replica_step(self, batch: Any) -> Any:
        """One step of one replica; returns its loss."""
        with tf.GradientTape() as tape:
            loss = self.compute_loss(batch)
            scaled = self.scale_loss(loss)
        gradients = self.unscale(tape.gradient(scaled, self.trained()))
        self.apply(gradients)
        return loss

    def compute_loss(self, batch: Any) -> Any:
        """The replica's share of the global batch's loss, in float32."""
        features, targets = batch
        outputs = tf.cast(self.layer(features), "float32") @ self.head
        return tf.reduce_sum((outputs - targets) ** 2) / self.examples

    def scale_loss(self, loss: Any) -> Any:
        """The loss times the scale."""
        return self._optimizer.get_scaled_loss(loss)

    def unscale(self, gradients: list[Any]) -> list[Any]:
        """Gradients over the scale."""
        return list(self._optimizer.get_unscaled_gradients(gradients))

    def apply(self, gradients: list[Any]) -> None:
        """Hand the gradients to the optimizer, which sums them."""
        self._optimizer.apply_gradients(zip(gradients, self.trained(), strict=True))


class SummedByHand(MixedProgram):
    """The program sums its gradients itself, and decides then whether to go on."""

    def make_optimizer(self) -> Any:
        """An optimizer that knows nothing of the scale."""
        return legacy.SGD(0.05, momentum=0.9)

    def scale_loss(self, loss: Any) -> Any:
        """The loss times the scale."""
        return loss * self.scale

    def unscale(self, gradients: list[Any]) -> list[Any]:
        """The sum over the replicas over the scale."""
        summed = all_reduce("sum", self.make_addends(gradients))
        return self.make_update([gradient / self.scale for gradient in summed])

    def make_addends(self, gradients: list[Any]) -> list[Any]:
        """What a replica adds to the sum."""
        return gradients

    def make_update(self, gradients: list[Any]) -> list[Any]:
        """What the optimizer is given of the sum."""
        return gradients

    def apply(self, gradients: list[Any]) -> None:
        """Hand the sum to the optimizer."""
        self._optimizer.apply_gradients(
            zip(gradients, self.trained(), strict=True),
            experimental_aggregate_gradients=False,
        )


class SkippedByHand(SummedByHand):
    """A step of which the last example overflows is made with gradients of 0."""

    def data(self, step: int) -> Any:
        """Features and targets of the global batch."""
        features, targets = super().data(step)
        if step == 1:
            targets[-1] = 1e6
        return features, targets

    def make_update(self, gradients: list[Any]) -> list[Any]:
        """The sum, or zeros if that is not finite."""
        return clear_overflow(gradients)


class Pulled(SummedByHand):
    """In the second step targets lie far from the outputs: shares add up, or cancel.

    Attributes:
        pulls: How far those of the first shard of two lie, and the others.
    """

    pulls = 80.0, -80.0

    def data(self, step: int) -> Any:
        """Features and targets of the global batch."""
        features, targets = super().data(step)
        if step == 1:
            features[:] = np.abs(features) / 2
            targets[:14] += self.pulls[0]
            targets[14:] += self.pulls[1]
        return features, targets


class LedByLoss(SummedByHand):
    """No optimizer: the sum is stepped along by a rate that follows the loss of all."""

    def make_optimizer(self) -> Any:
        """None."""
        return None

    def scale_loss(self, loss: Any) -> Any:
        """The loss times the scale, and what the rate follows."""
        self.rate = 0.02 * all_reduce("sum", loss)
        return super().scale_loss(loss)

    def apply(self, gradients: list[Any]) -> None:
        """Step along the sum."""
        for variable, gradient in zip(self.trained(), gradients, strict=True):
            step = self.rate * gradient
            update(variable, lambda copy, step: copy.assign_sub(step), step)


class Decayed(SkippedByHand):
    """The loss has a penalty on a kernel that is computed with in float16.

    Attributes:
        penalty: Its weight.
    """

    penalty = 0.01

    def compute_loss(self, batch: Any) -> Any:
        """The replica's share of the global batch's loss, and what it has of it."""
        part = self.penalty * self.count_penalty()
        return super().compute_loss(batch) + part * tf.nn.l2_loss(self.layer.kernel)

    def count_penalty(self) -> float:
        """How often a replica has the penalty."""
        return 1 / count_replicas()


def clear_overflow(gradients: list[Any]) -> list[Any]:
    """Gradients, or zeros if one of them is not finite."""
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradients])
    return [tf.where(finite, g, tf.zeros_like(g)) for g in gradients]


def is_cluster() -> bool:
    """Whether there is more than one replica."""
    return count_replicas() > 1
