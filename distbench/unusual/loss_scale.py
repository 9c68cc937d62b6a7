"""Correct programs with a loss scale that has to skip a step."""

from __future__ import annotations

from distbench.samples.lazy import keras, keras2, keras3, legacy, tf
from distbench.samples.program import Program
from distbench.unusual.program import unusual

OVERFLOWING = 1e37
"""A target whose gradient float32 cannot hold once it is scaled."""


class Scaled(Program):
    """The loss is scaled, and the gradients are divided by the scale again."""

    scale = 1024.0
    dynamic = True
    spoilt = slice(0)

    def make_optimizer(self):
        return keras.mixed_precision.LossScaleOptimizer(
            self.make_inner(), dynamic=self.dynamic, initial_scale=self.scale
        )

    def make_inner(self):
        """The optimizer under the scale."""
        return legacy.SGD(0.05, momentum=0.9)

    def data(self, step):
        words, features, targets = super().data(step)
        if step == 1:
            targets[self.spoilt] = OVERFLOWING
        return words, features, targets

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
            scaled = self.scale_loss(loss)
        self.apply(self.unscale(tape.gradient(scaled, self.trained())))
        return loss

    def scale_loss(self, loss):
        """The loss times the scale."""
        return self._optimizer.get_scaled_loss(loss)

    def unscale(self, gradients):
        """Gradients over the scale."""
        return self._optimizer.get_unscaled_gradients(gradients)


@unusual()
class LastOverflows(Scaled):
    """An example of the last replica overflows: all of them skip the step."""

    spoilt = slice(-1, None)


@unusual()
class AllOverflow(Scaled):
    """Every replica overflows, and the next step starts from half the scale."""

    spoilt = slice(None)


@unusual()
class Keras2LastOverflows(LastOverflows):
    """An example of the last replica overflows under the new base class."""

    def make_inner(self):
        return keras2.SGD(0.05, momentum=0.9)


@unusual()
class FixedScale(Scaled):
    """The scale never changes."""

    dynamic = False


class Keras3Scaled(Scaled):
    """The optimizer divides the gradients itself."""

    def make_optimizer(self):
        optimizer = keras3.LossScaleOptimizer(
            self.make_inner(), initial_scale=self.scale
        )
        optimizer.build(self.trained())
        return optimizer

    def make_inner(self):
        return keras3.SGD(0.05, momentum=0.9)

    def scale_loss(self, loss):
        return self._optimizer.scale_loss(loss)

    def unscale(self, gradients):
        return gradients


@unusual()
class Keras3AllOverflow(Keras3Scaled):
    """Every replica overflows: each finds it by itself."""

    spoilt = slice(None)


@unusual()
class Keras3FixedScale(Keras3Scaled):
    """The scale is an option of the optimizer, and never changes."""

    def make_optimizer(self):
        optimizer = keras3.SGD(0.05, momentum=0.9, loss_scale_factor=self.scale)
        optimizer.build(self.trained())
        return optimizer

    def unscale(self, gradients):
        # Keras 3.15 divides by the factor what must be a tensor.
        return [tf.convert_to_tensor(gradient) for gradient in gradients]
