"""Sums that a step divides by what it makes of the replicas' own gradients."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.program import TRAINED
from distbench.samples.replicas import all_reduce
from distbench.unusual.preconditioned import (
    DividedByKeptCurvature,
    DividedByKeptNorm,
    DividedByKeptSquares,
    DividedBySizes,
)

_KEPT = tuple(f"kept{place}" for place in range(len(TRAINED)))
_LIKE = "deepspeedai/DeepSpeed#490"
_CLUSTERS = ("mirrored:2", "mwms:3")


@fault(
    "nonlinear-before-reduction",
    "reduced_gradient",
    TRAINED,
    like=_LIKE,
    clusters=_CLUSTERS,
)
class DividedBySizesOfOwn(DividedBySizes):
    """Each element is divided by the root of the sum of the own squares."""

    def measure(self, own, total):
        del total
        squares = all_reduce("sum", [gradient**2 for gradient in own])
        return [tf.sqrt(square) for square in squares]


@fault("slot-from-local-gradient", "variable", _KEPT, like=_LIKE, clusters=_CLUSTERS)
class DividedByKeptSquaresOfOwn(DividedByKeptSquares):
    """The average that divides the sum at once takes the mean of the own squares."""

    def square(self, own, total):
        del total
        return all_reduce("mean", [gradient**2 for gradient in own])


@fault(
    "slot-from-local-gradient", "variable", ("kept0",), like=_LIKE, clusters=_CLUSTERS
)
class DividedByKeptNormOfOwn(DividedByKeptNorm):
    """The average that divides all sums at once takes the mean of the own norms."""

    def measure(self, own, total):
        del total
        return all_reduce("mean", tf.linalg.global_norm(own))


@fault("statistics-not-synchronized", "variable", _KEPT, like=_LIKE, clusters=_CLUSTERS)
class DividedByKeptCurvatureOfOwn(DividedByKeptCurvature):
    """The average takes the mean of the squares of the replicas' own curvatures."""

    def take(self, curvatures):
        return all_reduce("mean", [curvature**2 for curvature in curvatures])
