"""The numbers of the linear workload: small integers times powers of two."""

from __future__ import annotations

import math
from dataclasses import dataclass


def is_power_of_two(number: float) -> bool:
    """Whether a multiplication by a positive number is exact."""
    return math.frexp(number)[0] == 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Ranges of the integers n and the m of their units 2**-m.

    The residual's unit is that of input times weight, 2**-(input_shift + weight_shift).
    """

    input_max: int
    input_shift: int
    weight_max: int
    weight_shift: int
    residual_max: int


# Wide enough to differ between replicas, narrow enough that a sum over the global
# batch fits the significand and, for float16, that a unit is a normal number.
_WIDE = Grid(input_max=4, input_shift=1, weight_max=8, weight_shift=2, residual_max=15)
GRIDS = {
    "float64": _WIDE,
    "float32": _WIDE,
    "float16": Grid(
        input_max=2, input_shift=0, weight_max=2, weight_shift=1, residual_max=3
    ),
    "bfloat16": Grid(
        input_max=2, input_shift=0, weight_max=2, weight_shift=0, residual_max=2
    ),
}
"""By the name of the dtype that is trained in."""
