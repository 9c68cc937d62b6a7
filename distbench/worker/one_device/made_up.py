"""Whether what shards give alone makes up what the global batch gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from distbench.trace import Trace, TraceKey, Value
from distbench.worker.state.values import are_near, widen


def make_up(
    recorded: Trace,
    due: Mapping[TraceKey, Value],
    sizes: Sequence[int],
    dtype: str,
) -> bool:
    """Whether the shards' values add up to some of the batch's, as they are or by size.

    So they do where some of them are not known.

    Args:
        recorded: Has each shard alone.
        due: What the global batch has.
        sizes: Examples of each replica.
        dtype: See `are_near`.
    """
    whole = max(1, sum(sizes))
    return not due or any(
        all(_is_sum(recorded, key, value, weights, dtype) for key, value in due.items())
        for weights in ([1.0] * len(sizes), [size / whole for size in sizes])
    )


def _is_sum(
    recorded: Trace,
    key: TraceKey,
    value: Value,
    weights: Sequence[float],
    dtype: str,
) -> bool:
    parts = [recorded.get(replace(key, replica=r)) for r in range(len(weights))]
    known = [widen(part) for part in parts if part is not None]
    if len(known) < len(parts):
        return True
    total = sum(w * part for w, part in zip(weights, known, strict=True))
    return are_near(value, np.asarray(total, widen(value).dtype), dtype)
