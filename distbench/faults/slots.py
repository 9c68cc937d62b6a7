"""Mistakes in an optimizer's slots."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.collecting import Collecting
from distbench.samples.lazy import tf
from distbench.samples.optimizers import (
    Lookahead,
    OwnRule,
    SignsBesideDecay,
    optimizer,
)
from distbench.samples.replicas import all_reduce, count_replicas, find_copy, update

_NAME = "OwnRule"


def name_slots(slot):
    """Paths of the slots of the bench's workload with embeddings."""
    return tuple(f"{_NAME}/{v}/{slot}" for v in ("table", "kernel", "bias"))


_MADE_EARLY = ("table/m", "kernel/m", "bias/m")
"""Slots that are made before the base class opens its name scope."""


class OwnAdagrad(OwnRule):
    """Accumulates squares: a <- a + g squared, var <- var - rate g / sqrt(a)."""

    initial = 0.1

    def create_slots(self, variable):
        self.add_slot(variable, "a", tf.constant_initializer(self.initial))

    def _resource_apply_dense(self, grad, var, apply_state=None):
        slot = self.get_slot(var, "a")
        self.update_slot(slot, grad, var)
        return self.update_variable(var, slot, grad)

    def update_slot(self, slot, grad, var):
        slot.assign_add(grad**2)

    def update_variable(self, var, slot, grad):
        return var.assign_sub(self.rate * grad / tf.sqrt(slot))


@fault(
    "slot-initial",
    "slot",
    name_slots("a"),
    like="keras-team/keras#20541",
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class AccumulatorStartsAtReplicas(OwnAdagrad):
    """The accumulator starts at 0.1 on every replica, and these are added up."""

    def create_slots(self, variable):
        start = tf.constant_initializer(self.initial * count_replicas())
        self.add_slot(variable, "a", start)


@fault(
    "slot-initial",
    "slot",
    name_slots("slow"),
    like="tensorflow/addons#2351",
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class SlowWeightsStartAtZero(OwnRule):
    """Slow weights start as copies of the variables, but at 0 under a strategy."""

    def create_slots(self, variable):
        super().create_slots(variable)
        start = "zeros"
        if count_replicas() == 1:
            start = tf.constant_initializer(variable.numpy())
        self.add_slot(variable, "slow", start)


class FedBeforeTheSum(OwnRule):
    """Slots change in apply_gradients, before the optimizer sums."""

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        pairs = list(grads_and_vars)
        with tf.init_scope():
            self._create_all_weights([variable for _, variable in pairs])
        for gradient, variable in pairs:
            slot = self.get_slot(variable, "m")
            update(slot, self.feed, self.prepare(tf.convert_to_tensor(gradient)))
        return super().apply_gradients(pairs, name, **kwargs)

    def prepare(self, gradient):
        return gradient

    def feed(self, slot, gradient):
        slot.assign(self.beta * slot + gradient)

    def update_slot(self, slot, grad, var):
        """Nothing: it was fed before."""


@fault(
    "slot-from-local-gradient",
    "slot",
    _MADE_EARLY,
    like="keras-team/keras#20541",
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class MomentumOfOwnGradient(FedBeforeTheSum):
    """Momentum is fed with the replica's own gradient."""


@fault(
    "slot-from-local-gradient",
    "slot",
    _MADE_EARLY,
    like="keras-team/keras#20703",
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class SquaresSummed(FedBeforeTheSum):
    """The second moment takes the sum of the replicas' squares."""

    def prepare(self, gradient):
        return all_reduce("sum", gradient**2)

    def update_variable(self, var, slot, grad):
        return var.assign_sub(self.rate * grad / (tf.sqrt(slot) + 0.1))


@fault(
    "slot-from-local-gradient",
    "slot",
    _MADE_EARLY,
    like="deepspeedai/DeepSpeed#490",
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class SquareOfOwnGradient(FedBeforeTheSum):
    """The second moment takes the square of the replica's own gradient."""

    def prepare(self, gradient):
        return gradient**2

    def update_variable(self, var, slot, grad):
        return var.assign_sub(self.rate * grad / (tf.sqrt(slot) + 0.1))


@fault(
    "slot-not-synchronized",
    "slot",
    name_slots("m"),
    like="OpenNMT/OpenNMT-tf#705",
    replicas=(1,),
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class OnlyFirstCopyUpdated(OwnRule):
    """The slot is assigned on the first replica, as an only-first aggregation does."""

    def update_slot(self, slot, grad, var):
        if find_copy(var) == 0:
            super().update_slot(slot, grad, var)


@fault(
    "slot-not-synchronized",
    "slot",
    name_slots("m"),
    like="deepspeedai/DeepSpeed#5105",
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class SlotsSharedOut(OwnRule):
    """Each of two replicas updates the slots of some variables, and keeps them."""

    def update_slot(self, slot, grad, var):
        if count_replicas() == 1 or find_copy(var) == int("kernel" in var.name):
            super().update_slot(slot, grad, var)


@fault(
    "slot-not-synchronized",
    "slot",
    name_slots("m"),
    like="NVIDIA/Megatron-LM#1446",
    replicas=(1,),
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class SlotRoundedAtRandom(OwnRule):
    """Stochastic rounding of the slot with a seed that differs between replicas."""

    def update_slot(self, slot, grad, var):
        super().update_slot(slot, grad, var)
        if find_copy(var) > 0:
            seed = [3, find_copy(var)]
            noise = tf.random.stateless_uniform(slot.shape, seed, -1.0, 1.0)
            slot.assign_add(noise * 2.0**-10)


@fault(
    "slot-repeated",
    "slot",
    name_slots("m"),
    like="keras-team/keras#19990",
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class DecayedOncePerReplica(OwnRule):
    """The moving average takes the gradient once for each replica."""

    def update_slot(self, slot, grad, var):
        for _ in range(count_replicas()):
            slot.assign(self.beta * slot + (1 - self.beta) * grad)


@fault(
    "slot-repeated",
    "slot",
    name_slots("a"),
    like="horovod/horovod#2715",
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class SquaresAddedOncePerReplica(OwnAdagrad):
    """The accumulator of squares is increased once for each replica."""

    def update_slot(self, slot, grad, var):
        for _ in range(count_replicas()):
            super().update_slot(slot, grad, var)


@fault(
    "hyperparameter-differs",
    "slot",
    name_slots("m"),
    like="keras-team/keras#19990",
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class MemoryRaisedToReplicas(OwnRule):
    """Beta is raised to the power N, as if N steps had been taken in one."""

    def update_slot(self, slot, grad, var):
        slot.assign(self.beta ** count_replicas() * slot + grad)


class _OfEachReplica(Lookahead):
    def count_steps(self):
        return self.period * count_replicas()


@fault(
    "hyperparameter-differs",
    "slot",
    name_slots("slow"),
    like="keras-team/keras#19990",
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class PeriodTimesReplicas(_OfEachReplica):
    """Slow weights move after N times as many steps, as if N counted one each."""


@fault(
    "hyperparameter-differs",
    "slot",
    name_slots("slow"),
    like="keras-team/keras#19990",
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class LongPeriodTimesReplicas(_OfEachReplica):
    """The same of slow weights that one device moves every fifth step."""

    period = 5


@fault(
    "scale-error",
    "slot",
    name_slots("m"),
    like="deepspeedai/DeepSpeed#2695",
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class SlotFedWithScaledGradient(OwnRule):
    """The slot takes the gradient before the loss scale of the replicas is undone."""

    def update_slot(self, slot, grad, var):
        slot.assign(self.beta * slot + grad * float(count_replicas()) ** 0.5)


@fault(
    "scale-error",
    "slot",
    name_slots("m"),
    like="keras-team/keras#20541",
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class SlotFedWithMean(OwnRule):
    """Momentum takes the sum divided by N, which is what own momenta are on average."""

    def update_slot(self, slot, grad, var):
        slot.assign(self.beta * slot + grad / count_replicas())


@fault(
    "scale-error",
    "slot",
    name_slots("m"),
    like="keras-team/keras#20541",
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class SlotBesideDecayFedWithMean(SignsBesideDecay):
    """The same beside a decay, of a rule that takes the signs of what slots give."""

    def update_slot(self, slot, grad, var):
        return super().update_slot(slot, grad / count_replicas(), var)


@fault(
    "stale-gradient",
    "slot",
    ("collected_0", "collected_1"),
    like="tensorflow/tensorflow#25066",
    replicas=(1,),
    workload="linear",
)
@optimizer("SGD", 0.05)
class FirstReplicaAloneBeginsAnew(Collecting):
    """Replicas collect their own gradients; the others add applied ones once more."""

    def resets(self, is_due):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return is_due & (replica == 0)
