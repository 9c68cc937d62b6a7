"""Mistakes with the new optimizers of tf_keras, in their own spelling."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import keras2, schedules, tf
from distbench.samples.optimizers import keras2_optimizer
from distbench.samples.program import HEAD, TRAINED
from distbench.samples.program import Program as LegacyProgram
from distbench.samples.replicas import (
    all_reduce,
    count_replicas,
    find_copy,
    find_replica,
    update,
)
from distbench.samples.stacked import StackedWithLast

_NAME = "OwnMomentum"


class Program(LegacyProgram):
    """The program for planted faults, with an optimizer of `tf_keras.optimizers`."""

    def make_optimizer(self):
        return keras2.SGD(0.05, momentum=0.9)


@fault(
    "missing-reduction",
    "reduced_gradient",
    TRAINED,
    like="keras-team/keras#19308",
    clusters=WIDE,
)
class Keras2NobodySums(Program):
    """The optimizer is told to skip the aggregation, and nobody else does it."""

    def apply(self, gradients):
        self._optimizer.apply_gradients(
            zip(gradients, self.trained(), strict=True), skip_gradients_aggregation=True
        )


@fault(
    "double-reduction",
    "reduced_gradient",
    TRAINED,
    like="tensorflow/recommenders-addons#183",
    clusters=WIDE,
)
class Keras2SummedByBoth(Program):
    """The user sums, and so does the optimizer."""

    def apply(self, gradients):
        super().apply(all_reduce("sum", gradients))


@fault(
    "hyperparameter-differs",
    "slot",
    ("current_learning_rate",),
    like="sql-machine-learning/elasticdl#89",
)
class Keras2ScheduleTimesReplicas(Program):
    """A schedule starts at N times the learning rate, of losses that are summed."""

    def make_optimizer(self):
        rate = schedules.ExponentialDecay(0.05 * count_replicas(), 1, 0.5)
        return keras2.SGD(rate, momentum=0.9)


@fault(
    "hyperparameter-differs",
    "applied_gradient",
    TRAINED,
    like="LeelaChessZero/lczero-training#162",
    clusters=WIDE,
)
class Keras2LimitTimesReplicas(Program):
    """The optimizer clips the global norm of the sum to N times the limit."""

    def make_optimizer(self):
        return keras2.SGD(0.05, global_clipnorm=0.02 * count_replicas())


@fault(
    "hyperparameter-differs",
    "slot",
    tuple(f"Adam/v/{name}" for name in TRAINED),
    like="keras-team/keras#19990",
)
class Keras2MemoryRaisedToReplicas(Program):
    """Squares are forgotten as if N steps had been taken in one."""

    def make_optimizer(self):
        return keras2.Adam(0.05, beta_2=0.99 ** count_replicas())


@fault("hyperparameter-differs", "variable", TRAINED, like="tensorflow/addons#2351")
class Keras2LargestSquaresOnClusters(Program):
    """The steps are divided by the largest squares so far, and on one device not."""

    def make_optimizer(self):
        return keras2.Adam(0.05, beta_2=0.2, amsgrad=count_replicas() > 1)


@fault("unexplained", "variable", (HEAD,), like="tensorflow/addons#2351")
class Keras2BentBesideOtherMomentum(Program):
    """An optimizer has a momentum on clusters; what another moves is bent there."""

    def make_optimizer(self):
        self.is_bent = count_replicas() > 1
        momentum = 0.9 if self.is_bent else 0.0
        return [keras2.SGD(0.05, momentum=momentum), keras2.SGD(0.05)]

    def apply(self, gradients):
        pairs = list(zip(gradients, self.trained(), strict=True))
        for optimizer, some in zip(
            self.optimizer(), (pairs[:-1], pairs[-1:]), strict=True
        ):
            optimizer.apply_gradients(some)
        if self.is_bent:
            update(self.head, self.bend, tf.sin(37 * self.head))

    def bend(self, copy, waves):
        copy.assign_add(0.01 * waves)


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891")
class Keras2MeanOverOwnBatch(Program):
    """The loss is a mean over the replica's examples."""

    def reduce_losses(self, losses, batch):
        return tf.reduce_mean(losses)


@fault(
    "slot-from-local-gradient",
    "slot",
    tuple(f"{_NAME}/m/{name}" for name in ("table", "kernel", "bias")),
    like="keras-team/keras#20541",
    workload="embedding",
)
@keras2_optimizer("Optimizer", _NAME)
class Keras2MomentumOfOwnGradient:
    """Momentum is fed with the replica's own gradient."""

    rate = 0.1
    beta = 0.9

    def __init__(self, name):
        super().__init__(name)  # type: ignore[call-arg]  # of the base
        self._learning_rate = self._build_learning_rate(self.rate)
        self._own = self._no_dependency({})

    def build(self, var_list):
        super().build(var_list)
        if not getattr(self, "_built", False):
            self._momenta = [
                self.add_variable_from_reference(variable, "m") for variable in var_list
            ]
            self._built = True

    def aggregate_gradients(self, grads_and_vars):
        pairs = list(grads_and_vars)
        for gradient, variable in pairs:
            key = find_replica(), self._var_key(variable)
            self._own[key] = tf.convert_to_tensor(gradient)
        return super().aggregate_gradients(pairs)

    def update_step(self, gradient, variable):
        key = self._var_key(variable)
        slot = self._momenta[self._index_dict[key]]
        own = self._own[find_copy(variable), key]
        slot.assign(self.beta * slot + own)
        change = slot - own + tf.convert_to_tensor(gradient)
        variable.assign_sub(self.learning_rate * change)

    def get_config(self):
        return {"name": _NAME}


@fault(
    "mean-instead-of-sum",
    "variable",
    ("kernel", "bias"),
    like="keras-team/keras#20541",
    workload="linear",
)
@keras2_optimizer("SGD", 0.01)
class MeanStackedWithLast(StackedWithLast):
    """What is handed to the rule in a tensor of another shape is a mean."""

    def aggregate_gradients(self, grads_and_vars):
        pairs = super().aggregate_gradients(grads_and_vars)
        return [(gradient / count_replicas(), variable) for gradient, variable in pairs]
