"""How far two correct single-device runs lie apart, measured from the twins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from distbench.compare.bounds import find_roundoff, predict_spread, spread_sum
from distbench.compare.measure import BITWISE, Margin
from distbench.compare.ratio import fit_ratio
from distbench.compare.values import (
    Array,
    align_values,
    measure_norm,
    measure_size,
    name_dtype,
)
from distbench.evidence import Evidence
from distbench.trace import Phase, TraceKey

STATE: tuple[Phase, ...] = ("slot", "variable", "iterations")
"""Phases that hold what a step leaves behind."""

Place = tuple[Phase, str, int]
"""Phase, variable and call: noise is pooled over the steps of a place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one twin shows at one step.

    Attributes:
        step: The step.
        error: Largest absolute error ÷ largest absolute value of the reference.
        ratio: Fitted ratio - 1.
    """

    step: int
    error: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """Size of the reference's value for the whole batch."""

    size: float
    norm: float
    roundoff: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Measured noise of every place of a scenario.

    Attributes:
        exact: Whether there is none: every bound is 0.
        pooled: Whether all steps have the same noise; it grows in a free run.
        samples: What the twins show, by place.
        wholes: Sizes of the reference's values.
        phases: Upper limit of the relative error of a phase's median variable, by
            step; None stands for all steps.
    """

    exact: bool
    pooled: bool
    samples: Mapping[Place, tuple[Sample, ...]]
    wholes: Mapping[TraceKey, Whole]
    phases: Mapping[tuple[Phase, int | None], float]

    def find_margin(self, key: TraceKey, expected: Array) -> Margin:
        """Margin of a value of the reference, of the whole batch or of one shard.

        The absolute noise of the whole batch is also that of a shard or an upper limit
        of it: rounding errors grow with the sum of the absolute values of the terms,
        of which a shard has a part.
        """
        if self.exact or key.phase == "iterations":
            return BITWISE
        whole = self.wholes.get(
            TraceKey(
                step=key.step, phase=key.phase, variable=key.variable, call=key.call
            )
        )
        samples = self.samples.get((key.phase, key.variable, key.call), ())
        step = None if self.pooled else key.step
        if step is not None:
            samples = tuple(s for s in samples if s.step == step)
        if whole is None or not samples:
            return Margin(bound=math.inf)
        # A small tensor may repeat its bits in all twins by luck: then the noise of
        # the other variables in this phase is its limit, and in any case two correct
        # values are both rounded: they may lie one unit in the last place apart.
        size = max(whole.size, measure_size(expected))
        bound = predict_spread([s.error for s in samples]) * whole.size
        bound = max(
            bound, self.phases[key.phase, step] * size, 2 * whole.roundoff * size
        )
        if key.phase in STATE or key.phase == "loss":
            return Margin(bound=bound)
        norm = measure_norm(expected)
        if norm == 0 or not math.isfinite(norm):
            return Margin(bound=bound)
        ratio = predict_spread([s.ratio for s in samples]) * whole.norm / norm
        floor = spread_sum(expected, np.abs(expected), expected, 2, whole.roundoff)
        return Margin(bound=bound, ratio=max(ratio, floor / norm**2))


def measure_noise(evidence: Evidence) -> Noise:
    """Compare each twin with the reference, value by value."""
    declared = {v.path: v.dtype for v in evidence.reference.variables}
    samples: dict[Place, list[Sample]] = {}
    wholes: dict[TraceKey, Whole] = {}
    for twin in evidence.twins:
        for key, value in twin.values.items():
            base = evidence.reference.get(key)
            if base is None or key.phase == "iterations":
                continue
            expected, seen = (a.total for a in align_values((base, value)))
            size = measure_size(expected)
            wholes[key] = Whole(
                size=size,
                norm=measure_norm(expected),
                roundoff=find_roundoff(name_dtype(base, declared.get(key.variable))),
            )
            if expected.shape != seen.shape or size == 0 or not math.isfinite(size):
                continue
            with np.errstate(invalid="ignore"):
                error = measure_size(seen - expected) / size
            if not math.isfinite(error):
                continue
            # The ratio of a state to itself says nothing of the step.
            fit = None if key.phase in STATE else fit_ratio(seen, expected)
            ratio = 0.0 if fit is None else fit.ratio - 1
            samples.setdefault((key.phase, key.variable, key.call), []).append(
                Sample(step=key.step, error=error, ratio=ratio)
            )
    return Noise(
        exact=evidence.tier == "exact",
        pooled=evidence.tier == "bounded",
        samples={place: tuple(found) for place, found in samples.items()},
        wholes=wholes,
        phases=_limit_phases(samples),
    )


def _limit_phases(
    samples: Mapping[Place, Sequence[Sample]],
) -> dict[tuple[Phase, int | None], float]:
    """The median of the variables' limits: one noisy variable does not hide others."""
    limits: dict[tuple[Phase, int | None], list[float]] = {}
    for (phase, _, _), found in samples.items():
        for step in (None, *sorted({sample.step for sample in found})):
            errors = [s.error for s in found if step is None or s.step == step]
            limits.setdefault((phase, step), []).append(predict_spread(errors))
    return {place: float(np.median(found)) for place, found in limits.items()}
