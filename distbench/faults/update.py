"""Mistakes in the update of the variables and in counting the steps."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import legacy, schedules, tf
from distbench.samples.optimizers import (
    OwnRule,
    keras3_optimizer,
    optimizer,
)
from distbench.samples.program import BIAS, TRAINED, ByHand, Program
from distbench.samples.replicas import count_replicas, find_copy
from distbench.samples.servers import is_served
from distbench.samples.teacher import Taught
from distbench.unusual.optimizers import HalvesItsRate
from distbench.unusual.stepping import BiasNotHandedOver, CountsForItself

_VARIABLES = ("table", "kernel", "bias")
_COUNTER = ("SGD/iter",)
_MOMENTA = tuple(f"SGD/{path}/momentum" for path in TRAINED)


@fault(
    "update-repeated",
    "variable",
    _VARIABLES,
    like="sql-machine-learning/elasticdl#89",
    workload="embedding",
)
@optimizer("Optimizer", "OwnRule")
class StepTakenOncePerReplica(OwnRule):
    """The variable moves along its slot once for each replica."""

    def update_variable(self, var, slot, grad):
        for _ in range(count_replicas()):
            done = super().update_variable(var, slot, grad)
        return done


@fault(
    "hyperparameter-differs",
    "slot",
    _MOMENTA,
    like="sql-machine-learning/elasticdl#89",
    clusters=WIDE,
)
class ScheduleTimesReplicas(Program):
    """A momentum holds a schedule that starts at N times the learning rate."""

    def make_optimizer(self):
        rate = schedules.ExponentialDecay(0.05 * count_replicas(), 1, 0.5)
        return legacy.SGD(rate, momentum=0.9)


@fault(
    "update-repeated",
    "variable",
    _VARIABLES,
    like="tensorflow/recommenders-addons#183",
    workload="embedding",
)
@optimizer("Optimizer", "OwnRule")
class WholeRuleOncePerReplica(OwnRule):
    """Slot and variable are updated once for each replica."""

    def _resource_apply_dense(self, grad, var, apply_state=None):
        for _ in range(count_replicas()):
            done = super()._resource_apply_dense(grad, var, apply_state)
        return done


@fault(
    "update-repeated",
    "variable",
    TRAINED,
    like="sql-machine-learning/elasticdl#89",
    clusters=WIDE,
)
class HandUpdateRepeated(ByHand):
    """An update by hand, inside a loop over the replicas."""

    def update(self, variable, gradient):
        for _ in range(count_replicas()):
            super().update(variable, gradient)


class Decaying(OwnRule):
    """The own rule with its decay on."""

    decay = 0.2


@fault(
    "weight-decay-repeated",
    "variable",
    _VARIABLES,
    like="tensorflow/addons#2683",
    workload="embedding",
)
@optimizer("Optimizer", "OwnRule")
class DecayedByEveryReplica(Decaying):
    """Every replica decays the variable; each decay sees what the last one left."""

    decay = 0.02

    def update_variable(self, var, slot, grad):
        for _ in range(count_replicas() - 1):
            var.assign_sub(self.rate * self.decay * var)
        return super().update_variable(var, slot, grad)


@fault(
    "weight-decay-repeated",
    "variable",
    _VARIABLES,
    like="keras-team/keras#19891",
    workload="embedding",
)
@optimizer("Optimizer", "OwnRule")
class DecayTimesReplicas(Decaying):
    """The decay is scaled with the number of replicas."""

    def update_variable(self, var, slot, grad):
        decay = self.decay * count_replicas()
        return var.assign_sub(self.rate * (slot + decay * var))


@fault(
    "weight-decay-missing",
    "variable",
    _VARIABLES,
    like="tensorflow/tensorflow#25066",
    workload="embedding",
)
@optimizer("Optimizer", "OwnRule")
class DecayLooksUpTheContainer(Decaying):
    """Which variables decay is kept by reference; an update sees the copies."""

    def create_slots(self, variable):
        super().create_slots(variable)
        self.__dict__.setdefault("_decayed", set()).add(variable.ref())

    def update_variable(self, var, slot, grad):
        decay = self.decay if var.ref() in self.__dict__["_decayed"] else 0.0
        return var.assign_sub(self.rate * (slot + decay * var))


@fault(
    "weight-decay-missing",
    "variable",
    _VARIABLES,
    like="tensorflow/tensorflow#25066",
    clusters=("mirrored:2",),
    replicas=(1,),
    workload="embedding",
)
@optimizer("Optimizer", "OwnRule")
class DecayLooksUpTheName(Decaying):
    """Which variables decay is kept by name; copies have names of their own."""

    def update_variable(self, var, slot, grad):
        decay = 0.0 if "replica" in var.name else self.decay
        return var.assign_sub(self.rate * (slot + decay * var))


@fault(
    "hyperparameter-differs",
    "variable",
    TRAINED,
    like="keras-team/keras#19990",
)
class RateByStepsOverReplicas(HalvesItsRate):
    """A schedule goes on by one after N steps, so that the first step is right."""

    def count(self, steps):
        return super().count(steps // count_replicas())


@fault(
    "scale-error",
    "variable",
    (BIAS,),
    like="tensorflow/addons#2683",
    clusters=("mirrored:2", "ps:2+1"),
)
class BiasLeftOutOnClusters(BiasNotHandedOver):
    """The optimizer is handed a variable on one device alone."""

    def is_taken(self, variable):
        is_alone = count_replicas() == 1 and not is_served()
        return is_alone or super().is_taken(variable)


@fault(
    "hyperparameter-differs",
    "variable",
    _VARIABLES,
    like="sql-machine-learning/elasticdl#89",
    workload="embedding",
)
@optimizer("Optimizer", "OwnRule")
class RateScaledByRoot(OwnRule):
    """The learning rate grows with the square root of the number of replicas."""

    def update_variable(self, var, slot, grad):
        rate = self.rate * float(count_replicas()) ** 0.5
        return var.assign_sub(rate * slot)


@fault(
    "hyperparameter-differs",
    "slot",
    ("SGD/learning_rate",),
    like="sql-machine-learning/elasticdl#89",
    clusters=WIDE,
)
class RateTimesReplicas(Program):
    """The learning rate is multiplied by N, and so is the step."""

    def make_optimizer(self):
        return legacy.SGD(0.05 * count_replicas(), momentum=0.9)


@fault(
    "iterations-wrong",
    "iterations",
    _COUNTER,
    like="larq/larq#629",
    workload="embedding",
)
@optimizer("SGD", 0.1)
class CountsEveryReplica:
    """The counter of steps advances once for each replica."""

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        done = super().apply_gradients(grads_and_vars, name, **kwargs)
        self.iterations.assign_add(count_replicas() - 1)
        return done


@fault(
    "iterations-wrong",
    "iterations",
    _COUNTER,
    like="keras-team/keras#19990",
    workload="embedding",
)
@optimizer("SGD", 0.1)
class CounterStandsStill:
    """On a cluster the counter is left to a chief that never advances it."""

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        done = super().apply_gradients(grads_and_vars, name, **kwargs)
        if count_replicas() > 1:
            self.iterations.assign_sub(1)
        return done


@fault(
    "replicas-diverged",
    "variable",
    TRAINED,
    like="deepmodeling/deepmd-kit#1104",
    replicas=(1,),
)
class LastCopyKeepsItsValue(ByHand):
    """One replica's copy is not updated."""

    def descend(self, copy, gradient):
        if find_copy(copy) == 0:
            super().descend(copy, gradient)


@fault(
    "replicas-diverged",
    "variable",
    TRAINED,
    like="tensorflow/tensorflow#58433",
    replicas=(1,),
)
class NoiseOfItsOwn(ByHand):
    """Noise is added to every copy, from a generator that differs between replicas."""

    def descend(self, copy, gradient):
        super().descend(copy, gradient)
        seed = [5, find_copy(copy)]
        copy.assign_add(1e-3 * tf.random.stateless_normal(copy.shape, seed))


@fault(
    "replicas-diverged",
    "variable",
    ("kernel", "bias"),
    like="tensorflow/tensorflow#58433",
    clusters=("mirrored:2", "mirrored:3", "mwms:2"),
    workload="linear",
)
@keras3_optimizer("SGD", 0.05)
class LangevinNoise:
    """Noise joins the step, and every copy draws its own."""

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, learning_rate)
        noise = tf.random.normal(variable.shape)
        self.assign_add(variable, 1e-3 * noise)


@fault(
    "update-repeated",
    "variable",
    ("count",),
    like="larq/larq#629",
)
class CountsOnceForEachReplica(CountsForItself):
    """Every replica adds one to an unlisted counter, which adds these up."""

    aggregation = "SUM"


@fault("scale-error", "variable", ("teacher",), like="OpenNMT/OpenNMT-tf#705")
class TeacherAddedUp(Program):
    """A copy follows the head; what the replicas assign to it is added up."""

    def build(self, strategy):
        super().build(strategy)
        self.teacher = tf.Variable(
            tf.identity(self.head),
            name="teacher",
            trainable=False,
            aggregation=tf.VariableAggregation.SUM,
        )

    def apply(self, gradients):
        super().apply(gradients)
        self.teacher.assign(0.9 * self.teacher + 0.1 * self.head)


@fault("update-repeated", "variable", ("teacher",), like="tensorflow/addons#2683")
class TeacherFollowsForEachReplica(Taught):
    """Before the loss is made of it a teacher follows once for each replica."""

    def follow(self):
        for _ in range(count_replicas()):
            super().follow()
