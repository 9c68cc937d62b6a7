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

_FAR = 16
"""From how many times smaller or larger values on the rounding may be another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one twin shows at one step, or a shard that is run again.

    Attributes:
        step: The step.
        error: Largest absolute error ÷ largest absolute value of the reference, and
            one roundoff more: two values that agree in all bits still stand for any
            that round to them, so a scalar's noise is not 0 where three twins repeat.
        ratio: Fitted ratio - 1.
        size: What the error is relative to.
        u: Unit roundoff of the value's dtype.
    """

    step: int
    error: float
    ratio: float
    size: float
    u: float


Samples = dict[Pool, list[Sample]]


def add_sample(
    samples: Samples,
    key: TraceKey,
    base: Value,
    expected: Array,
    seen: Array,
    size: float,
    more: float = 0.0,
) -> None:
    """Add how far a value lies from another one.

    Args:
        samples: By pool; gets it.
        key: Of the value.
        base: It as it was recorded, which tells its dtype.
        expected: It in float64.
        seen: The other one.
        size: What its rounding is relative to.
        more: What may be lost besides.
    """
    u = find_roundoff(name_value(base))
    error = _measure_noise(seen, expected, size) + u + (more / size if more else 0.0)
    # The ratio of a state to itself says nothing of the step.
    fit = None if key.phase in STATE else fit_ratio(seen, expected)
    ratio = 0.0 if fit is None else fit.ratio - 1
    samples.setdefault((key.phase, key.variable, key.call), []).append(
        Sample(step=key.step, error=error, ratio=ratio, size=size, u=u)
    )


def limit_pools(
    samples: Mapping[Pool, Sequence[Sample]],
    *,
    narrowest: str = "",
    pooled: bool = True,
) -> Limits:
    """How far correct values may lie apart, by samples of such.

    Args:
        samples: By pool.
        narrowest: The narrowest dtype of the step, where that is known.
        pooled: Whether a step has the samples of others as well. Of far smaller or
            larger values those alone that this dtype may round so: what is subtracted
            until nothing is left has the rounding of what there was, and tells nothing
            of a step that has more. Nor does a step that has more hide what one that
            has less loses.
    """
    rounding = 2 * find_roundoff(narrowest)
    limits: dict[tuple[Pool, int | None], tuple[float, float]] = {}
    for pool, found in samples.items():
        finite = [s for s in found if math.isfinite(s.error)]
        limits[pool, None] = _limit(finite or found)
        steps = {sample.step for sample in found}
        if pooled and len(finite) == len(found) and _are_near(found):
            limits.update({(pool, step): limits[pool, None] for step in steps})
            continue
        table = _Table(finite, rounding)
        for step in steps:
            here = [s for s in found if s.step == step]
            is_known = pooled and all(math.isfinite(s.error) for s in here)
            limits[pool, step] = (
                table.limit(max(s.size for s in here)) if is_known else _limit(here)
            )
    return limits


def _are_near(samples: Sequence[Sample]) -> bool:
    sizes = [s.size for s in samples]
    return max(sizes) <= _FAR * min(sizes)


class _Table:
    """Samples of steps of which some have far larger values than others.

    Args:
        samples: Finite ones.
        rounding: What a narrow dtype may lose; what loses more has cancelled.
    """

    def __init__(self, samples: Sequence[Sample], rounding: float) -> None:
        self._sizes = np.array([s.size for s in samples])
        self._errors = np.array([s.error for s in samples])
        self._ratios = np.array([s.ratio for s in samples])
        self._rounded = self._errors <= rounding

    def limit(self, size: float) -> tuple[float, float]:
        """The limits of a step with values of a size."""
        near = (self._sizes >= size / _FAR) & (self._sizes <= size * _FAR)
        known = [near, near | self._rounded]
        errors, ratios = (
            max(predict_spread(kind[one]) for one in known)
            for kind in (self._errors, self._ratios)
        )
        return errors, ratios


def _limit(samples: Sequence[Sample]) -> tuple[float, float]:
    return (
        predict_spread([s.error for s in samples]),
        predict_spread([s.ratio for s in samples]),
    )


def _measure_noise(seen: Array, expected: Array, size: float) -> float:
    """Largest error over the largest value; 0 over 0 is 0, anything else infinite."""
    with np.errstate(invalid="ignore"):
        error = measure_distance(seen, expected)
    if error == 0:
        return 0.0
    return error / size if size > 0 and math.isfinite(error) else math.inf
