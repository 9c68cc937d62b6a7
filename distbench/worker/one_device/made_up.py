"""Whether what shards give alone makes up what the global batch gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from distbench.trace import Trace, TraceKey, Value
from distbench.trace.numbers import densify
from distbench.worker.state.values import are_near


def make_up(
    recorded: Trace,
    due: Mapping[TraceKey, Value],
    sizes: Sequence[int],
    dtype: str,
    find_margin: Callable[[TraceKey, Value], float],
) -> bool:
    """Whether the shards' values add up to some of the batch's, as they are or by size.

    So they do where some of them are not known, or where rounding leaves nothing of
    what the batch has, which adds up to nothing either.

    Args:
        recorded: Has each shard alone.
        due: What the global batch has.
        sizes: Examples of each replica.
        dtype: See `are_near`.
        find_margin: How far rounding may take a value of the batch.
    """

    def is_sum(key: TraceKey, value: Value, weights: Sequence[float]) -> bool:
        parts = [recorded.get(replace(key, replica=r)) for r in range(len(weights))]
        known = [densify(part) for part in parts if part is not None]
        if len(known) < len(parts):
            return True
        shares = [w * part for w, part in zip(weights, known, strict=True)]
        total = np.asarray(sum(shares))
        return are_near(
            value, total, dtype, find_noise=partial(find_margin, key, value)
        )

    whole = max(1, sum(sizes))
    return not due or any(
        all(is_sum(key, value, weights) for key, value in due.items())
        for weights in ([1.0] * len(sizes), [size / whole for size in sizes])
    )
