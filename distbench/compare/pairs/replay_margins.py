"""How far a cluster's update may lie from the same update on one device.

The same rule on the same numbers leaves the same bits. What else may come out, and why,
is said here.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from distbench.compare.arrays.aligned import align_values
from distbench.compare.arrays.bounds import bound_sum, bound_underflow, find_roundoff
from distbench.compare.arrays.copies import are_same, have_same_rows
from distbench.compare.arrays.measure import BITWISE, Margin
from distbench.compare.arrays.noise import Noise
from distbench.compare.pairs.expected import Expected
from distbench.compare.pairs.reduced import count_mean_roundings
from distbench.evidence import Evidence
from distbench.trace import STATE, WHOLE, TraceKey, Value, VariableInfo
from distbench.trace.numbers import densify


class ReplayMargins:
    """Margins of what follows from observed gradients."""

    def __init__(
        self,
        evidence: Evidence,
        noise: Noise,
        expected: Expected,
        infos: Mapping[str, VariableInfo],
    ) -> None:
        self._evidence = evidence
        self._noise = noise
        self._expected = expected
        self._infos = infos
        self._exact = evidence.tier == "exact"
        self._differing: dict[int, bool] = {}

    def find(self, key: TraceKey, value: Value, expected: Value, dtype: str) -> Margin:
        """The margin of an observed value.

        Args:
            key: Where it was observed.
            value: The observed value.
            expected: What one device makes of the observed gradients.
            dtype: The dtype in which it was computed.
        """
        margin = self._bound_rows(value, expected, dtype)
        if margin == BITWISE:
            margin = self._noise.find_update_margin(key, expected)
        if margin == BITWISE and self._may_be_averaged(key):
            margin = self._bound_mean(value, expected, dtype)
        if margin == BITWISE and key.phase in STATE and self._has_other_slot(key.step):
            margin = self._noise.find_margin(key, densify(expected))
        return margin

    def _bound_rows(self, value: Value, expected: Value, dtype: str) -> Margin:
        """Bitwise, but for rows that one side has added up and the other has not."""
        if self._exact or have_same_rows(value, expected):
            return BITWISE
        left, right = align_values((value, expected))
        most = np.maximum(left.number, right.number)
        magnitude = np.maximum(left.magnitude, right.magnitude)
        return Margin(bound=bound_sum(magnitude, most - 1, find_roundoff(dtype)))

    def _may_be_averaged(self, key: TraceKey) -> bool:
        """Whether replicas that all hold it may average it once more.

        They do so with gradients that were summed before, and with what they assign to
        a variable of aggregation MEAN. A trained variable is updated, not assigned.
        """
        if key.phase == "applied_gradient":
            return True
        info = self._infos.get(key.variable) if key.phase in STATE else None
        return info is not None and info.averages and not info.trainable

    def _bound_mean(self, value: Value, expected: Value, dtype: str) -> Margin:
        """Bitwise, but for the rounding of an average over equal values.

        Dyadic numbers are averaged without rounding.
        """
        replicas = self._evidence.observed.replicas
        roundings = count_mean_roundings(replicas)
        if self._exact or not roundings:
            return BITWISE
        size = np.abs(align_values((value, expected))[1].total)
        bound = bound_sum(size, roundings, find_roundoff(dtype))
        # Whoever divides first adds up N times what that loses.
        lost = replicas * bound_underflow(size / replicas, dtype)
        return Margin(bound=bound + np.where(size > 0, lost, 0.0))

    def _has_other_slot(self, step: int) -> bool:
        """Whether a slot that a replay cannot reach differs from that of one device.

        The update may use it: it may divide by a norm that each replica keeps of its
        own gradients, say. A replay computes with the slot of one device, so it then
        agrees with the cluster only as far as the slots do.
        """
        if step not in self._differing:
            found = self._evidence.observed.select(step=step, phase="slot")
            self._differing[step] = any(
                info.synchronised
                and not self._expected.is_fed(key)
                and not are_same(value, expected)
                for key, value in found
                if (info := self._infos.get(key.variable)) is not None
                and (expected := self._expected.find_reference(key.at(WHOLE)))
                is not None
            )
        return self._differing[step]
