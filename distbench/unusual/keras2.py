"""Correct programs with the new optimizers of tf_keras."""

from __future__ import annotations

from distbench.samples.lazy import keras, keras2, tf
from distbench.samples.optimizers import keras2_optimizer
from distbench.samples.program import Program
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.samples.stacked import StackedWithLast
from distbench.unusual.program import unusual


@unusual()
class Keras2Options(Program):
    """Each variable has an optimizer with another option of the base class."""

    def make_optimizer(self):
        adam = keras2.Adam
        compiled = adam(0.05)
        compiled.jit_compile = True
        return [
            adam(0.05, weight_decay=0.1),
            adam(0.05, use_ema=True, ema_momentum=0.75, ema_overwrite_frequency=2),
            adam(0.05, global_clipnorm=0.1),
            adam(0.05, clipnorm=0.1),
            compiled,
        ]

    def apply(self, gradients):
        given = zip(self._optimizer, gradients, self.trained(), strict=True)
        for optimizer, gradient, variable in given:
            optimizer.apply_gradients([(gradient, variable)])


@unusual()
class Keras2OwnReduction(Program):
    """The user sums, and the optimizer is told not to in the older spelling."""

    def make_optimizer(self):
        return keras2.SGD(0.05, momentum=0.9, global_clipnorm=0.5)

    def apply(self, gradients):
        self._optimizer.apply_gradients(
            zip(all_reduce("sum", gradients), self.trained(), strict=True),
            experimental_aggregate_gradients=False,
        )


@unusual()
class Keras2LossScale(Program):
    """A loss scale multiplies the loss and divides the gradients."""

    def make_optimizer(self):
        inner = keras2.Adam(0.05)
        return keras.mixed_precision.LossScaleOptimizer(inner)

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
            scaled = self._optimizer.get_scaled_loss(loss)
        gradients = tape.gradient(scaled, self.trained())
        self.apply(self._optimizer.get_unscaled_gradients(gradients))
        return loss


@unusual(workload="linear")
@keras2_optimizer("SGD", 0.01)
class SumStackedWithLast(StackedWithLast):
    """What is summed is handed to the rule in a tensor of another shape."""


class _MeanOfParts:
    """Takes the mean over the replicas, and as many times that as it is told."""

    parts = 1

    def aggregate_gradients(self, grads_and_vars):
        gradients, variables = zip(*grads_and_vars, strict=True)
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        parts = [self.parts * mean for mean in all_reduce("mean", dense)]
        return list(zip(parts, variables, strict=True))

    def get_config(self):
        return {**super().get_config(), "parts": self.parts}


@unusual(clusters=("mirrored:3", "mwms:2"))
class Keras2PartsListed(Program):
    """Means are multiplied by the number of replicas, which is a setting."""

    def make_optimizer(self):
        made = type("MeanOfParts", (_MeanOfParts, keras2.SGD), {})(0.05, momentum=0.9)
        made.parts = count_replicas()
        return made
