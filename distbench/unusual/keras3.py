"""Correct programs with Keras 3."""

from __future__ import annotations

from distbench.samples.collecting import make_own
from distbench.samples.lazy import keras3, keras3_base, tf
from distbench.samples.optimizers import keras3_optimizer
from distbench.samples.program import Program
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.unusual.program import unusual


@unusual()
class Keras3Options(Program):
    """Each variable has an optimizer with another option of the base class."""

    def make_optimizer(self):
        adam = keras3.Adam
        optimizers = [
            keras3.SGD(0.05, momentum=0.9, nesterov=True),
            adam(0.05, use_ema=True, ema_momentum=0.75),
            adam(0.05, loss_scale_factor=8.0),
            keras3.AdamW(0.05, weight_decay=0.1),
            keras3.Lion(0.05),
        ]
        for optimizer, variable in zip(optimizers, self.trained(), strict=True):
            optimizer.build([variable])
        return optimizers

    def apply(self, gradients):
        given = zip(self._optimizer, gradients, self.trained(), strict=True)
        for optimizer, gradient, variable in given:
            optimizer.apply([gradient], [variable])


@unusual()
class Keras3Layers(Program):
    """The variables are those of a model of Keras 3, several of them called kernel."""

    def build(self, strategy):
        super().build(strategy)
        layers = keras3_base.layers
        self.model = keras3_base.Sequential(
            [layers.Dense(5, activation="tanh"), layers.Dense(3)]
        )
        self.model.build((None, 4))
        seeded = keras3_base.initializers.RandomNormal(seed=3)
        for variable in self.model.trainable_variables:
            variable.assign(seeded(variable.shape))
        self._optimizer.build(self.trained())

    def make_optimizer(self):
        return keras3.Adam(0.05)

    def trained(self):
        return self.model.trainable_variables

    def predict(self, batch):
        return self.model(batch[1])


@unusual()
class Keras3GradientsOfValues(Keras3Layers):
    """A tape is asked about what variables of Keras 3 wrap; half goes to the rule."""

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
        values = [variable.value for variable in self.trained()]
        self.apply(self.change(tape.gradient(loss, values)))
        return loss

    def change(self, gradients):
        return [0.5 * gradient for gradient in gradients]


@unusual()
class Keras3LossScale(Program):
    """A loss scale multiplies the loss, and its optimizer divides the gradients."""

    def make_optimizer(self):
        optimizer = keras3.LossScaleOptimizer(keras3.Adam(0.05))
        optimizer.build(self.trained())
        return optimizer

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
            scaled = self._optimizer.scale_loss(loss)
        self.apply(tape.gradient(scaled, self.trained()))
        return loss


@unusual()
class Keras3CounterInShares(Program):
    """An optimizer counts in a variable to which every replica adds its share."""

    def make_optimizer(self):
        replicas = count_replicas()

        class Counting(keras3.SGD):
            def build(self, variables):
                super().build(variables)
                self.seen = keras3_base.Variable(
                    0.0, aggregation="sum", trainable=False, name="seen"
                )

            def apply(self, grads, trainable_variables=None):
                self.seen.assign((self.seen + 1.0) / replicas)
                return super().apply(grads, trainable_variables)

        optimizer = Counting(0.05, momentum=0.9)
        optimizer.build(self.trained())
        return optimizer


@unusual()
class Keras3OfLists(Program):
    """A rule is given all gradients and variables at once; it sums by itself."""

    sums = True

    def make_optimizer(self):
        sums = self.sums

        class OfLists(keras3.SGD):
            def _backend_update_step(self, grads, trainable_variables, learning_rate):
                grads = all_reduce("sum", grads) if sums else grads
                self.update_step(grads, trainable_variables, learning_rate)

            def update_step(self, gradient, variable, learning_rate):
                length = tf.linalg.global_norm(gradient)
                for part, one in zip(gradient, variable, strict=True):
                    one.assign_sub(learning_rate * part / (1.0 + length))

        optimizer = OfLists(0.05)
        optimizer.build(self.trained())
        return optimizer


class AveragingOwn:
    """A moving average of the own gradients is handed on; Keras 3 is its base."""

    def build(self, variables):
        if not self.built:
            super().build(variables)
            pairs = enumerate(variables)
            self.averages = [self.make_average(place, v) for place, v in pairs]

    def make_average(self, place, variable):
        """What a replica keeps of a variable's gradients."""
        return make_own(variable, place)

    def apply(self, grads, trainable_variables=None):
        handed = []
        for kept, gradient in zip(self.averages, grads, strict=True):
            average = 0.9 * self.read(kept) + 0.1 * gradient
            kept.assign(average)
            handed.append(self.send(average))
        return super().apply(handed, trainable_variables)

    def read(self, kept):
        """The replica's own average."""
        return kept.read_value()

    def send(self, average):
        """What of it is added up."""
        return average


@unusual(workload="linear")
@keras3_optimizer("SGD", 0.1, name="averaging")
class Keras3AveragesOwnGradients(AveragingOwn):
    """Each replica averages its own gradients, and what they hold is added up."""
