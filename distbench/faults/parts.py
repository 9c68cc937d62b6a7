"""Mistakes in sums of large gradients alone."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.optimizers import optimizer
from distbench.samples.parts import SummedInParts
from distbench.samples.replicas import all_reduce

_CLUSTERS = ("mirrored:2", "mwms:2")
_KERNEL = ("hidden/kernel",)


@fault(
    "missing-reduction",
    "reduced_gradient",
    _KERNEL,
    like="NVIDIA/Megatron-LM#1446",
    clusters=_CLUSTERS,
    workload="large",
)
@optimizer("Adam", 0.01)
class ShorterPartLeftOut(SummedInParts):
    """Large gradients are summed in parts, and the one that is left over is not."""

    def sum_parts(self, parts):
        return [*super().sum_parts(parts[:-1]), parts[-1]]


@fault(
    "mean-instead-of-sum",
    "reduced_gradient",
    _KERNEL,
    like="keras-team/keras#20703",
    clusters=_CLUSTERS,
    workload="large",
)
@optimizer("SGD", 0.1, momentum=0.9)
class PartsAveraged(SummedInParts):
    """Gradients that are reduced in parts are averaged, and all others summed."""

    def sum_parts(self, parts):
        return [all_reduce("mean", part) for part in parts]
