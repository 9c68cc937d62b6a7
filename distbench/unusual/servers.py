"""Correct rules and programs with many steps in flight."""

from __future__ import annotations

from distbench.samples.lazy import keras, legacy, tf
from distbench.samples.optimizers import optimizer, v1_optimizer
from distbench.samples.program import Program
from distbench.samples.servers import is_served, linger
from distbench.unusual.program import unusual

_RATE = 0.125
_SERVED = ("ps:2+1",)
_counted = unusual(clusters=_SERVED, workload="counting", in_flight=8)


@_counted
@optimizer("SGD", _RATE)
class DescentInFlight:
    """Plain descent of tf_keras' legacy optimizers."""


@_counted
@v1_optimizer("GradientDescentOptimizer", _RATE, use_locking=True)
class LockedDescentInFlight:
    """Plain descent of TensorFlow 1, with use_locking."""


@_counted
@v1_optimizer("GradientDescentOptimizer", _RATE, use_locking=False)
class UnlockedDescentInFlight:
    """Plain descent of TensorFlow 1, without use_locking."""


@_counted
@optimizer("Adagrad", _RATE)
class AdagradInFlight:
    """A rule that divides by a sum over the steps, element by element."""


@_counted
@optimizer("SGD", _RATE, momentum=0.5)
class MomentumInFlight:
    """A rule to which the order of the steps matters."""


@_counted
@optimizer("Adam", _RATE)
class AdamInFlight:
    """A rule that asks for the number of steps, which others change meanwhile."""


@_counted
@v1_optimizer("RMSPropOptimizer", _RATE, momentum=0.5, use_locking=True)
class LockedRmspropInFlight:
    """A rule with two slots, both changed in one op; Adam's powers of beta are not."""


@_counted
@v1_optimizer("MomentumOptimizer", _RATE, 0.5, use_locking=False)
class UnlockedMomentumInFlight:
    """Momentum of TensorFlow 1, without use_locking."""


@_counted
@optimizer("SGD", _RATE)
class SlowInPlace:
    """An update that takes long, and then changes the variable in place."""

    def _resource_apply_dense(self, grad, var, apply_state=None):
        del apply_state
        return var.assign_sub(linger(_RATE * grad))


@unusual(clusters=_SERVED, in_flight=4)
class ProgramInFlight(Program):
    """Steps that read while others write: each gradient is of some earlier state."""

    def make_optimizer(self):
        return legacy.SGD(0.02)


@unusual(clusters=_SERVED, in_flight=4)
class ByHandInFlight(Program):
    """The step subtracts in place, without an optimizer."""

    def make_optimizer(self):
        return None

    def apply(self, gradients):
        for gradient, variable in zip(gradients, self.trained(), strict=True):
            variable.assign_sub(0.02 * tf.convert_to_tensor(gradient))


@unusual(clusters=_SERVED, in_flight=4)
class MomentumByOneOpInFlight(Program):
    """A program's own momentum, which one op changes with the variable it moves."""

    def make_optimizer(self):
        return None

    def build(self, strategy):
        super().build(strategy)
        start = tf.zeros_like(self.table)
        self.velocity = tf.Variable(start, trainable=False, name="velocity")

    def variables(self):
        return [*super().variables(), self.velocity]

    def apply(self, gradients):
        table, *others = map(tf.convert_to_tensor, gradients)
        self.move_table(table)
        for gradient, variable in zip(others, self.trained()[1:], strict=True):
            variable.assign_sub(0.02 * gradient)

    def move_table(self, gradient):
        """Change the momentum, and the table by it."""
        tf.raw_ops.ResourceApplyMomentum(
            var=self.table.handle,
            accum=self.velocity.handle,
            lr=0.02,
            grad=gradient,
            momentum=0.5,
        )


@unusual(clusters=_SERVED, in_flight=8)
class StatisticsInFlight(ProgramInFlight):
    """Averages follow from what the step had read, and are added to in place."""

    def build(self, strategy):
        super().build(strategy)
        self.seen = tf.Variable(0.0, trainable=False, name="seen")
        self.average = tf.Variable(self.head, trainable=False, name="average")

    def variables(self):
        return [*super().variables(), self.seen, self.average]

    def apply(self, gradients):
        super().apply(gradients)
        self.seen.assign_add(self.examples)
        self.average.assign_sub(linger(0.1 * (self.average - self.head)))


@unusual(clusters=_SERVED, in_flight=8)
class MetricInFlight(ProgramInFlight):
    """A metric of Keras reads the model again when some steps have updated, late."""

    def build(self, strategy):
        super().build(strategy)
        self.mean = keras.metrics.Mean(name="mean")
        self.updated = tf.Variable(0, dtype=tf.int64, trainable=False, name="updated")

    def variables(self):
        return [*super().variables(), *self.mean.variables, self.updated]

    def replica_step(self, batch):
        loss = super().replica_step(batch)
        updated = self.updated.assign_add(1)
        late = tf.cond(
            tf.equal(updated % 8, 1),
            lambda: linger(updated),
            lambda: tf.identity(updated),
        )
        with tf.control_dependencies([late]):
            self.mean.update_state(tf.abs(self.predict(batch)))
        return loss


@unusual(clusters=_SERVED, in_flight=8)
class ReadsInPartsInFlight(Program):
    """Variables are read one after the other, while other steps write."""

    def make_optimizer(self):
        return legacy.SGD(0.02)

    def predict(self, batch):
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        with tf.control_dependencies([linger(embedded)]):
            first = self.first.read_value()
        with tf.control_dependencies([linger(first)]):
            second = self.second.read_value()
        with tf.control_dependencies([linger(second)]):
            hidden = embedded @ first + features @ second + self.bias
            return tf.tanh(hidden) @ self.head


@unusual(clusters=_SERVED, in_flight=8)
class StandsStillInFlight(Program):
    """Every eighth step begins with the others, and reads when they have ended."""

    def make_optimizer(self):
        return legacy.SGD(0.02)

    def build(self, strategy):
        super().build(strategy)
        self.begun = tf.Variable(0, dtype=tf.int64, trainable=False, name="begun")

    def replica_step(self, batch):
        begun = self.begun.assign_add(1)
        if not is_served():
            return super().replica_step(batch)
        late = tf.cond(
            tf.equal(begun % 8, 1), lambda: linger(begun), lambda: tf.identity(begun)
        )
        with tf.control_dependencies([late]):
            return super().replica_step(batch)
