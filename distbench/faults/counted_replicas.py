"""Rules that count the replicas in what they make of a sum."""

from __future__ import annotations

from functools import partial

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.optimizers import OwnRule, SignsBesideDecay, optimizer
from distbench.samples.replicas import count_replicas

_NAME = "OwnRule"
_fault = partial(
    fault,
    phase="variable",
    variables=("table", "kernel", "bias"),
    workload="embedding",
    clusters=WIDE,
)


class _Blending(SignsBesideDecay):
    """The step goes along the direction of momentum and gradient, blended."""

    def update_variable(self, var, slot, grad):
        blended = self.beta * slot + (1 - self.beta) * grad
        return var.assign_sub(self.rate * blended / (tf.norm(blended) + 1e-7))


@_fault("mean-instead-of-sum", like="keras-team/keras#19891")
@optimizer("Optimizer", _NAME)
class MeanBlendedWithMomentum(_Blending):
    """A momentum takes the sum, and the step blends it with an N-th of the sum."""

    def update_variable(self, var, slot, grad):
        return super().update_variable(var, slot, grad / count_replicas())


@_fault("double-reduction", like="keras-team/keras#20541")
@optimizer("Optimizer", _NAME)
class ManyBlendedWithMomentum(_Blending):
    """A momentum takes the sum, and the step blends it with N times the sum."""

    def update_variable(self, var, slot, grad):
        return super().update_variable(var, slot, grad * count_replicas())


@_fault("hyperparameter-differs", like="keras-team/keras#19990")
@optimizer("Optimizer", _NAME)
class SquashedOncePerReplica(OwnRule):
    """Steps are squashed softly, into a range that is N times as narrow."""

    def update_variable(self, var, slot, grad):
        most = 0.02 / count_replicas()
        return var.assign_sub(self.rate * most * tf.tanh(slot / most))
