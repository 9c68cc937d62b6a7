"""Mistakes with numbers of Python's that an update moves: they move as it is traced."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.optimizers import OwnRule, optimizer

_TRAINED = ("table", "kernel", "bias")


@fault(
    "hyperparameter-differs",
    "variable",
    _TRAINED,
    like="keras-team/keras-core#551",
    workload="embedding",
    clusters=("mirrored:2",),
)
@optimizer("Optimizer", "OwnRule")
class RateCountedFromLayerToLayer(OwnRule):
    """Each layer's rate is half the last one's; layers are counted as they come."""

    layer = 0

    def update_variable(self, var, slot, grad):
        rate = self.rate * 0.5 ** (self.layer % 8)
        self.layer += 1
        return var.assign_sub(rate * slot)


@fault(
    "hyperparameter-differs",
    "slot",
    tuple(f"OwnRule/{name}/m" for name in _TRAINED),
    like="keras-team/keras-core#551",
    workload="embedding",
    clusters=("mirrored:3",),
)
@optimizer("Optimizer", "OwnRule")
class MomentumWarmedUpInPython(OwnRule):
    """The momentum comes nearer to its own by a factor that each update multiplies."""

    missing = 1.0

    def update_slot(self, slot, grad, var):
        self.missing *= 0.9375
        slot.assign(self.beta * (1 - self.missing) * slot + grad)
