"""Mistakes with variables whose gradient is their next value, as in float8."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.replicas import all_reduce
from distbench.unusual.overwritten import Float8Activations

_STATISTIC = "statistics-not-synchronized"
_LIKE = "NVIDIA/TransformerEngine#74"


@fault(_STATISTIC, "variable", ("amax",), like=_LIKE)
class Float8ScaleOfOwnShard(Float8Activations):
    """The scale of float8 is what each replica's own activations need."""

    def join(self, largest):
        return largest


@fault(_STATISTIC, "variable", ("amax",), like=_LIKE)
class Float8ScaleAveraged(Float8Activations):
    """The scale of float8 is the mean of what the replicas need."""

    def join(self, largest):
        return all_reduce("mean", largest)


@fault(_STATISTIC, "variable", ("amax",), like=_LIKE)
class Float8ScaleAddedUp(Float8Activations):
    """The scale of float8 is the sum of what the replicas need."""

    def join(self, largest):
        return all_reduce("sum", largest)
