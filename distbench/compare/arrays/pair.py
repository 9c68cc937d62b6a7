"""An observed value beside what it ought to be, and in which relation the two stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from distbench.compare.arrays.measure import Margin
from distbench.trace import Phase, TraceKey
from distbench.trace.numbers import Array

Relation = Literal[
    "reference", "follows", "added", "replicas", "led", "average", "total", "result"
]

TOLD: tuple[Relation, ...] = ("total", "result")
"""Relations of what is told of a step, and trains nothing."""

OF_COPIES: tuple[Relation, ...] = ("average", *TOLD)
"""Relations of what the replicas have only together, each holding its own part."""

SHARD = "one device, the same shard"
GLOBAL = "one device, the global batch"
START = "one device, before the first step"
SAVED = "what was saved"
SUM = "sum of the observed local gradients"
CHANGED = "what one device makes of the sum of the observed local gradients"
DIRECTION = "direction of the sum of the observed local gradients"
ADDED = "one-device update with the sum of the observed local gradients"
UPDATES: dict[Phase, str] = {
    "reduced_gradient": "one-device update with the observed reduced gradient",
    "applied_gradient": "one-device update with the observed applied gradient",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """An observed value and what it ought to be.

    Attributes:
        key: Where it was observed; replica `WHOLE` for a sum over the replicas.
        relation: Against the reference, against what follows from the observed phase
            before it, or from the sum of gradients that nobody saw being added up,
            against another replica, what all replicas' examples make of it,
            what the copies of trained state gain on average, what all replicas add
            together, or what a metric makes of that.
        against: Name of what it is compared with.
        observed: Observed value; of sparse gradients only the rows that occur.
        expected: Expected value, of the same shape.
        margin: How far apart the two may lie.
        dtype: Dtype in which the observed value was computed.
        base: State before the step; 0 for gradients and losses.
        terms: The addends of a sum, one for each replica.
        rows: Row numbers of a sparse value.
        repeats: Whether both come from the same ops on the same numbers.
        gap: What integers differ by at most that float64 has no room for; else 0.
        tested: What came of testing it, once it was; the pairs of several replicas that
            hold the very same numbers share this list.
    """

    key: TraceKey
    relation: Relation
    against: str
    observed: Array
    expected: Array
    margin: Margin
    dtype: str
    base: Array | float = 0.0
    terms: Sequence[Array] = ()
    rows: Array | None = None
    repeats: bool = False
    gap: float = 0.0
    tested: list[Any] = field(default_factory=list, repr=False)
