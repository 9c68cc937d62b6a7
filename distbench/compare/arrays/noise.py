"""The noise of a scenario's single-device run, and the margins that it allows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from distbench.compare.arrays.measure import BITWISE, Margin
from distbench.trace import STATE, UPDATED, WHOLE, Phase, TraceKey, Value
from distbench.trace.numbers import Array, densify, measure_finite, measure_norm

Pool = tuple[Phase, str, int]
"""Phase, variable and call, over whose steps noise is pooled."""
Limits = Mapping[tuple[Pool, int | None], tuple[float, float]]
"""Upper limits of the relative error and of the ratio's deviation from 1, by pool and
step; None stands for all steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """Largest absolute value and norm of the reference's value for the whole batch.

    Of a value of rounding alone the largest is that of its terms. Where some elements
    are Inf or NaN, the size is that of the others: they may be rows of examples that
    did not overflow, and are held against what they are due. Such a value tells nothing
    of the noise.

    Attributes:
        size: What its rounding is relative to.
        norm: Its norm.
        spread: How many times as large as the whole batch's the rounding of a shard is.
    """

    size: float
    norm: float
    spread: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Measured noise of every pool of a scenario.

    Attributes:
        exact: Whether there is none: every bound is 0, but for what XLA joins.
        pooled: Whether all steps have the same noise; it grows in a free run.
        ordered: Whether it matters to the program in which order its examples come.
        limits: How far a correct value may lie from the reference's.
        wholes: Sizes of the reference's values.
        repeated: How far the same ops on the same shard may lie apart; empty where no
            shard was run again.
        alone: How far a shard by itself may lie apart: one that is normalised by its
            own examples may round more than the whole batch does.
        alone_sizes: What that is relative to, of each shard before it is weighed.
        compiled: How far the same update may lie apart; empty where it may not.
        kernels: How far it may lie apart by variable, relative to the largest element,
            where other kernels may have computed it; empty where none may.
        starts: The same of its initial value.
        rounded: How far what a step adds to its state may lie apart, if it computes in
            a narrower dtype than that of its variables; empty where it does not.
        led: The same where the gradients are equal, of state that something else of the
            batch leads as well.
    """

    exact: bool
    pooled: bool
    ordered: bool
    limits: Limits
    wholes: Mapping[TraceKey, Whole]
    repeated: Limits
    compiled: Limits
    alone: Limits = field(default_factory=dict)
    alone_sizes: Mapping[TraceKey, float] = field(default_factory=dict)
    kernels: Mapping[str, float] = field(default_factory=dict)
    starts: Mapping[str, float] = field(default_factory=dict)
    rounded: Limits = field(default_factory=dict)
    led: Limits = field(default_factory=dict)

    def find_update_margin(self, key: TraceKey, expected: Value) -> Margin:
        """Margin of what follows from the same gradients by the same ops.

        Bitwise, but for what XLA may do in one graph and not in another, and for what
        other kernels round otherwise.
        """
        limits = _pick_limit(self.compiled, key, pooled=True)
        share = 0.0 if limits is None else limits[0]
        if key.phase in UPDATED or key.phase == "applied_gradient":
            share = max(share, self.kernels.get(key.variable, 0.0))
        return _allow(share, expected)

    def find_start_margin(self, key: TraceKey, expected: Value) -> Margin:
        """Margin of state before the first step: bitwise where one kernel makes it."""
        return _allow(self.starts.get(key.variable, 0.0), expected)

    def find_rounded_margin(
        self, key: TraceKey, expected: Value, *, is_fed: bool
    ) -> Margin | None:
        """Margin of state that a step makes in a narrower dtype than the state's own.

        None where no rounding to that dtype was tried.

        Args:
            key: Where the state was observed.
            expected: What one device makes of the global batch.
            is_fed: Whether it was given the gradients of the replicas besides.
        """
        limits = _pick_limit(
            self.led if is_fed else self.rounded, key, pooled=self.pooled
        )
        if limits is None or not math.isfinite(limits[0]):
            return None
        return Margin(bound=limits[0] * measure_finite(densify(expected)))

    def find_repeated_margin(self, key: TraceKey, expected: Array) -> Margin:
        """Margin of a shard's value that comes from the same ops on the same numbers.

        Both limits hold, that of the shard and that of the whole batch, so the tighter
        one is taken: few reruns give a wide one. Where no shard was run again, one
        that rounds more than the whole batch has its own.
        """
        margin = self.find_margin(key, expected)
        limits = _pick_limit(self.repeated, key, pooled=True)
        size = measure_finite(expected)
        if limits is None or size == 0:
            return self._allow_alone(margin, key, expected)
        error, ratio = limits
        bound = min(margin.widest, error * size)
        norm = measure_norm(expected)
        if margin.ratio == math.inf or not 0 < norm < math.inf:
            return replace(margin, bound=bound)
        ratio = min(margin.ratio, max(ratio, error * size / norm))
        return Margin(bound=bound, ratio=ratio)

    def _allow_alone(self, margin: Margin, key: TraceKey, expected: Array) -> Margin:
        limits = _pick_limit(self.alone, key, pooled=True)
        size = self.alone_sizes.get(key, 0.0)
        if limits is None or self.exact or not size or not math.isfinite(limits[0]):
            return margin
        slack = max(0.0, limits[0] * size - margin.widest)
        return margin.widen(slack, measure_norm(expected)) if slack else margin

    def find_margin(self, key: TraceKey, expected: Array) -> Margin:
        """Margin of a value of the reference, of the whole batch or of one shard.

        The absolute noise of the whole batch is also that of a shard or an upper limit
        of it: rounding errors grow with the sum of the absolute values of the terms,
        of which a shard has a part.
        """
        if key.phase == "iterations":
            return BITWISE
        if self.exact:
            # Of sums that do not round; XLA joins the ops of an update as elsewhere.
            return self.find_update_margin(key, expected)
        whole = self.wholes.get(key.at(WHOLE))
        limits = _pick_limit(self.limits, key, pooled=self.pooled)
        if whole is None or limits is None:
            return Margin(bound=math.inf)
        error, ratio = limits
        if not math.isfinite(error):
            return Margin(bound=math.inf)
        bound = error * max(whole.size, measure_finite(expected))
        if key.phase in STATE or key.phase == "loss":
            return Margin(bound=bound)
        norm = measure_norm(expected)
        if not 0 < norm < math.inf:
            return Margin(bound=bound)
        # Were the errors of the elements independent, each as large as the bound, the
        # ratio would spread by bound / norm; common errors show in the twins' ratios.
        return Margin(bound=bound, ratio=max(ratio * whole.norm, bound) / norm)


def _pick_limit(
    limits: Limits, key: TraceKey, *, pooled: bool
) -> tuple[float, float] | None:
    """The limit of a step; where nothing is known of it, if need be that of all steps.

    There is none beside a 0 that is one by chance, as the way from the start is in the
    first step. Other steps have theirs all the same.
    """
    pool = key.phase, key.variable, key.call
    own = limits.get((pool, key.step))
    return limits.get((pool, None)) if own is None and pooled else own


def _allow(share: float, expected: Value) -> Margin:
    """Margin of a share of the largest element; bitwise where it is 0."""
    if not share:
        return BITWISE
    return Margin(bound=share * measure_finite(densify(expected)))
