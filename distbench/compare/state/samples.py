"""What runs that differ by rounding show of a value, and the limits that they set."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from distbench.compare.arrays.bounds import find_roundoff, predict_spread
from distbench.compare.arrays.noise import Limits, Pool
from distbench.compare.arrays.ratio import fit_ratio
from distbench.trace import STATE, TraceKey, Value
from distbench.trace.numbers import Array, measure_distance, name_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one twin shows at one step, or a shard that is run again.

    Attributes:
        step: The step.
        error: Largest absolute error ÷ largest absolute value of the reference, and
            one roundoff more: two values that agree in all bits still stand for any
            that round to them, so a scalar's noise is not 0 where three twins repeat.
        ratio: Fitted ratio - 1.
        u: Unit roundoff of the value's dtype.
    """

    step: int
    error: float
    ratio: float
    u: float


Samples = dict[Pool, list[Sample]]


def add_sample(
    samples: Samples,
    key: TraceKey,
    base: Value,
    expected: Array,
    seen: Array,
    size: float,
) -> None:
    """Add how far a value lies from another one.

    Args:
        samples: By pool; gets it.
        key: Of the value.
        base: It as it was recorded, which tells its dtype.
        expected: It in float64.
        seen: The other one.
        size: What its rounding is relative to.
    """
    u = find_roundoff(name_value(base))
    error = _measure_noise(seen, expected, size) + u
    # The ratio of a state to itself says nothing of the step.
    fit = None if key.phase in STATE else fit_ratio(seen, expected)
    ratio = 0.0 if fit is None else fit.ratio - 1
    samples.setdefault((key.phase, key.variable, key.call), []).append(
        Sample(step=key.step, error=error, ratio=ratio, u=u)
    )


def limit_pools(samples: Mapping[Pool, Sequence[Sample]]) -> Limits:
    """How far correct values may lie apart, by samples of such."""
    limits: dict[tuple[Pool, int | None], tuple[float, float]] = {}
    for pool, found in samples.items():
        for step in (None, *sorted({sample.step for sample in found})):
            here = [s for s in found if s.step == step]
            if step is None:
                here = [s for s in found if math.isfinite(s.error)] or list(found)
            limits[pool, step] = (
                predict_spread([s.error for s in here]),
                predict_spread([s.ratio for s in here]),
            )
    return limits


def _measure_noise(seen: Array, expected: Array, size: float) -> float:
    """Largest error over the largest value; 0 over 0 is 0, anything else infinite."""
    with np.errstate(invalid="ignore"):
        error = measure_distance(seen, expected)
    if error == 0:
        return 0.0
    return error / size if size > 0 and math.isfinite(error) else math.inf
