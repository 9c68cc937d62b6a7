"""Slots that take another number than on one device, with others that follow them."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.faults.slots import name_slots
from distbench.samples.lazy import tf
from distbench.samples.optimizers import OwnRule, optimizer
from distbench.samples.replicas import count_replicas

_NAME = "OwnRule"


class _Collecting(OwnRule):
    """Two moments take the mean of two steps' gradients."""

    def create_slots(self, variable):
        for slot in ("collected", "m", "v"):
            self.add_slot(variable, slot)

    def _resource_apply_dense(self, grad, var, apply_state=None):
        collected, m, v = (self.get_slot(var, s) for s in ("collected", "m", "v"))
        is_due = tf.cast(self.iterations % 2 == 1, grad.dtype)
        total = self.add(collected, grad)
        mean = self.divide(total)
        collected.assign((1 - is_due) * total)
        m.assign_add(is_due * 0.1 * (mean - m))
        v.assign_add(is_due * 0.01 * (mean**2 - v))
        return var.assign_sub(is_due * self.rate * m / (tf.sqrt(v) + 0.01))

    def add(self, collected, grad):
        return collected + grad

    def divide(self, total):
        return total / 2


_moments_scaled = fault(
    "scale-error",
    "slot",
    (*name_slots("m"), *name_slots("v")),
    like="NVIDIA/Megatron-LM#3023",
    workload="embedding",
)


@_moments_scaled
@optimizer("Optimizer", _NAME)
class CollectedOverReplicasDivided(_Collecting):
    """Two moments take the mean of two steps' gradients, divided by N besides."""

    def divide(self, total):
        return super().divide(total) / count_replicas()


@_moments_scaled
@optimizer("Optimizer", _NAME)
class CollectedDividedBeforeTheNext(_Collecting):
    """What is collected is divided by N before the next gradient is added."""

    def add(self, collected, grad):
        return collected / count_replicas() + grad


@fault(
    "hyperparameter-differs",
    "slot",
    (*name_slots("s"), *name_slots("top")),
    like="keras-team/keras#19990",
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class EpsilonDividedByReplicas(OwnRule):
    """What is added to squared distances from a momentum is an N-th on a cluster."""

    decay = 0.05

    def create_slots(self, variable):
        for slot in ("m", "s", "top"):
            self.add_slot(variable, slot)

    def _resource_apply_dense(self, grad, var, apply_state=None):
        m, s, top = (self.get_slot(var, slot) for slot in ("m", "s", "top"))
        m.assign_add(0.1 * (grad - m))
        s.assign(0.99 * s + 0.01 * (grad - m) ** 2 + 0.1 / count_replicas())
        top.assign(tf.maximum(top, s))
        return var.assign_sub(self.rate * (m / tf.sqrt(top) + self.decay * var))
