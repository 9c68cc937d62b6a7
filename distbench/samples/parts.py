"""Gradients that are summed in parts where they are large."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from distbench.samples.lazy import tf
from distbench.samples.replicas import all_reduce


class SummedInParts:
    """An optimizer that sums large gradients part by part, and others as they are."""

    longest = 1 << 14

    def _aggregate_gradients(self, grads_and_vars: Any) -> list[tuple[Any, Any]]:
        return [(self.sum(tf.convert_to_tensor(g)), v) for g, v in grads_and_vars]

    def sum(self, gradient: Any) -> Any:
        """The sum over the replicas."""
        size = math.prod(gradient.shape)
        if size <= self.longest:
            return all_reduce("sum", gradient)
        flat = tf.reshape(gradient, [-1])
        starts = range(0, size, self.longest)
        parts = [flat[start : start + self.longest] for start in starts]
        return tf.reshape(tf.concat(self.sum_parts(parts), 0), gradient.shape)

    def sum_parts(self, parts: Sequence[Any]) -> list[Any]:
        """The sum of each part; the last one is shorter, as a rule."""
        return [all_reduce("sum", part) for part in parts]
