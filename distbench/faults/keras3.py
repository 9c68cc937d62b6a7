"""Mistakes with the optimizers of Keras 3."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import keras3, keras3_base, tf
from distbench.samples.optimizers import keras3_optimizer
from distbench.samples.program import TRAINED
from distbench.samples.program import Program as LegacyProgram
from distbench.samples.replicas import (
    all_reduce,
    count_replicas,
    find_copy,
    find_replica,
)
from distbench.unusual.keras3 import AveragingOwn, Keras3Layers, Keras3OfLists

_EMBEDDING = ("table", "kernel", "bias")


class Program(LegacyProgram):
    """The program for planted faults, with an optimizer of Keras 3."""

    def make_optimizer(self):
        optimizer = keras3.SGD(0.05, momentum=0.9)
        optimizer.build(self.trained())
        return optimizer


@fault(
    "missing-reduction",
    "reduced_gradient",
    _EMBEDDING,
    like="keras-team/keras#19308",
    workload="embedding",
)
@keras3_optimizer("SGD", 0.1, momentum=0.9)
class Keras3NobodySums:
    """The update leaves out the sum over replicas, as the first Keras 3 did."""

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars


@fault(
    "missing-reduction",
    "applied_gradient",
    TRAINED,
    like="keras-team/keras#19308",
)
class Keras3ListsNobodySums(Keras3OfLists):
    """A rule of all variables at once goes round the method that sums."""

    sums = False


@fault(
    "double-reduction",
    "reduced_gradient",
    TRAINED,
    like="tensorflow/recommenders-addons#183",
    clusters=WIDE,
)
class Keras3SummedByBoth(Program):
    """The user sums, and so does the optimizer, which always does."""

    def apply(self, gradients):
        super().apply(all_reduce("sum", gradients))


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891")
class Keras3MeanOverOwnBatch(Program):
    """The loss is a mean over the replica's examples."""

    def reduce_losses(self, losses, batch):
        return tf.reduce_mean(losses)


class _Kept:
    """Keras would track a dictionary."""

    def __init__(self):
        self.gradients = {}


@fault(
    "slot-from-local-gradient",
    "slot",
    tuple(f"own/{name}_0_m" for name in _EMBEDDING),
    like="keras-team/keras#20541",
    workload="embedding",
)
@keras3_optimizer("Optimizer", 0.1, name="own")
class Keras3MomentumOfOwnGradient:
    """Momentum is fed with the replica's own gradient."""

    beta = 0.9

    def build(self, variables):
        if not self.built:
            super().build(variables)
            self._own = _Kept()
            self._momenta = self.add_optimizer_variables(variables, "m")

    def _all_reduce_sum_gradients(self, grads_and_vars):
        for gradient, variable in grads_and_vars:
            key = find_replica(), self._get_variable_index(variable)
            self._own.gradients[key] = tf.convert_to_tensor(gradient)
        return super()._all_reduce_sum_gradients(grads_and_vars)

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        slot = self._momenta[index]
        own = self._own.gradients[find_copy(variable), index]
        self.assign(slot, self.beta * slot + own)
        change = slot - own + tf.convert_to_tensor(gradient)
        self.assign_sub(variable, learning_rate * change)


@fault(
    "scale-error",
    "slot",
    tuple(
        f"halved/{name}_0_{slot}"
        for name in _EMBEDDING
        for slot in ("momentum", "velocity")
    ),
    like="keras-team/keras#20703",
    workload="embedding",
)
@keras3_optimizer("Adam", 0.01, epsilon=1e-3, name="halved")
class Keras3RuleDividesByReplicas:
    """The rule divides the sum by the number of replicas, in both of its averages."""

    def update_step(self, gradient, variable, learning_rate):
        share = tf.convert_to_tensor(gradient) / count_replicas()
        super().update_step(share, variable, learning_rate)


@fault(
    "scale-error",
    "slot",
    ("seen",),
    like="keras-team/keras#20541",
    clusters=("mirrored:2", "mwms:3"),
)
class Keras3CounterAddedUp(Program):
    """An optimizer counts in a variable that adds up what all replicas assign to it."""

    def make_optimizer(self):
        class Counting(keras3.SGD):
            def build(self, variables):
                super().build(variables)
                self.seen = keras3_base.Variable(
                    0.0, aggregation="sum", trainable=False, name="seen"
                )

            def apply(self, grads, trainable_variables=None):
                self.seen.assign(self.seen + 1.0)
                return super().apply(grads, trainable_variables)

        optimizer = Counting(0.05, momentum=0.9)
        optimizer.build(self.trained())
        return optimizer


@fault("loss-scaled-twice", "loss", like="keras-team/keras#19891")
class Keras3TermDividedTwice(Keras3Layers):
    """A list of losses is added up; that of the hidden units is divided by N again."""

    def reduce_losses(self, losses, batch):
        hidden = self.model.layers[0](batch[1])
        sizes = tf.reduce_sum(hidden**2) / self.examples
        error = super().reduce_losses(losses, batch)
        return keras3_base.ops.sum([error, sizes / count_replicas()])


class _AveragingInCopies(AveragingOwn):
    def make_average(self, place, variable):
        return self.add_variable_from_reference(variable, "average")

    def read(self, kept):
        return kept


@fault(
    "slot-from-local-gradient",
    "slot",
    ("averaging/kernel_0_average", "averaging/bias_0_average"),
    like="keras-team/keras#20541",
    workload="linear",
)
@keras3_optimizer("SGD", 0.1, name="averaging")
class Keras3AveragesInCopies(_AveragingInCopies):
    """Averages of the own gradients lie in copies of what all replicas should share."""


@fault(
    "nonlinear-before-reduction",
    "reduced_gradient",
    ("kernel", "bias"),
    like="keras-team/keras#20541",
    workload="linear",
)
@keras3_optimizer("SGD", 0.1, name="averaging")
class Keras3SendsSignsOfAverages(_AveragingInCopies):
    """The signs of such averages are added up."""

    def send(self, average):
        return tf.sign(average)
