"""Mistakes in what a step by hand makes of the examples besides their gradient."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.program import BUFFERS, TRAINED
from distbench.samples.replicas import all_reduce, find_replica
from distbench.unusual.curvature import CorrectedByLastValues, DividedByCurvature

_CURVED = tuple(f"square{place}" for place in range(len(TRAINED)))


@fault(
    "statistics-not-synchronized",
    "variable",
    _CURVED,
    like="deepspeedai/DeepSpeed#490",
)
class RootsOfOwnCurvatures(DividedByCurvature):
    """The replicas' own curvatures are squared before they are added up."""

    def join(self, curvatures):
        summed = all_reduce("sum", [curvature**2 for curvature in curvatures])
        return [tf.sqrt(square) for square in summed]


@fault(
    "statistics-not-synchronized",
    "variable",
    _CURVED,
    like="deepspeedai/DeepSpeed#490",
)
class DividedByOwnCurvature(DividedByCurvature):
    """Each replica divides by the curvature of its own share of the loss."""

    def join(self, curvatures):
        return curvatures


@fault(
    "replicas-diverged",
    "variable",
    _CURVED,
    like="deepspeedai/DeepSpeed#490",
)
class ProbedByOwnSigns(DividedByCurvature):
    """Each replica takes the curvature along the signs of all along its own ones."""

    def draw_signs(self, batch):
        number = find_replica()
        return [
            tf.sign(tf.random.stateless_normal(v.shape, [place, 3 + number]))
            for place, v in enumerate(self.trained())
        ]

    def join(self, curvatures):
        signs = self.draw_signs(None)
        pairs = zip(signs, curvatures, strict=True)
        summed = all_reduce("sum", [sign * curvature for sign, curvature in pairs])
        return [sign * total for sign, total in zip(signs, summed, strict=True)]


@fault(
    "statistics-not-synchronized",
    "variable",
    BUFFERS,
    like="horovod/horovod#2654",
)
class CorrectedByMeanOfLast(CorrectedByLastValues):
    """Gradients are summed here, and averaged at the last values."""

    def correct(self, now, before):
        now, before = all_reduce("sum", now), all_reduce("mean", before)
        return [self.limit(g + 0.5 * (g - b)) for g, b in zip(now, before, strict=True)]


@fault(
    "statistics-not-synchronized",
    "variable",
    BUFFERS,
    like="LeelaChessZero/lczero-training#162",
)
class CorrectedThenClipped(CorrectedByLastValues):
    """Each replica limits the norm of what it corrected, and that is summed."""

    longest = 0.2

    def correct(self, now, before):
        pairs = zip(now, before, strict=True)
        return all_reduce("sum", [self.limit(g + 0.5 * (g - b)) for g, b in pairs])
