"""Gradients of which the terms may cancel, so that what is left of them is rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.likeness import find_half
from distbench.compare.arrays.noise import Whole
from distbench.compare.arrays.ratio import share_by_size
from distbench.trace import GRADIENTS, Trace, TraceKey
from distbench.trace.numbers import (
    Array,
    densify,
    measure_distance,
    measure_finite,
    name_value,
)


def find_cancelled(
    reference: Trace, wholes: Mapping[TraceKey, Whole]
) -> dict[TraceKey, Whole]:
    """Sizes of what such gradients of the global batch are rounded in.

    Before a batch normalisation, or where as many errors have one sign as the other,
    what is left of all terms is no size that rounding has a part of, and twins may
    repeat it: they round alike. Replicas need not. Where a gradient is less than half
    of the digits of its step's largest one, its size is the largest that one device has
    of it in any step, or of a shard, or of which one rounding is what its shards
    together leave of it; but no more than the step's largest one. Shards that are
    rounding as well may have more of it, as many times as they are larger.

    Args:
        reference: One device, with its shards.
        wholes: Sizes of its values of the global batch.
    """
    gradients = {k: w for k, w in wholes.items() if k.phase in GRADIENTS}
    largest: dict[tuple[int, str], float] = {}
    own: dict[tuple[str, int], float] = {}
    for key, whole in gradients.items():
        step, place = (key.step, key.phase), (key.variable, key.call)
        largest[step] = max(largest.get(step, 0.0), whole.size)
        if key.phase == "local_gradient":
            own[place] = max(own.get(place, 0.0), whole.size)
    found = {}
    for key, whole in gradients.items():
        most = largest[key.step, key.phase]
        least = find_half(name_value(reference.values[key])) * most
        if whole.size < least:
            shard, left = _measure_terms(reference, key)
            other = own.get((key.variable, key.call), 0.0)
            size = max(whole.size, min(max(shard, left, other), most))
            is_rounding = 0 < whole.size < shard < least
            spread = shard / whole.size if is_rounding else 1.0
            found[key] = replace(whole, size=size, spread=spread)
    return found


def _measure_terms(reference: Trace, key: TraceKey) -> tuple[float, float]:
    """The largest of shards, and of what one rounding is what they leave of the whole.

    Args:
        reference: One device.
        key: A gradient of the global batch, or what was made of it.
    """
    local = replace(key, phase="local_gradient")
    whole, shards = reference.get(local), reference.get_replicas(local)
    if whole is None or not shards:
        return 0.0, 0.0
    due, parts = densify(whole), list(map(densify, shards))
    u = find_roundoff(name_value(whole))
    left = _measure_rest(due, parts, reference.get_shards(key.step))
    return max(map(measure_finite, parts)), left / u if u else 0.0


def _measure_rest(whole: Array, parts: Sequence[Array], sizes: Sequence[int]) -> float:
    """What parts leave of a whole at least: summed, averaged or weighed by sizes."""
    even = 1 / len(parts)
    kinds = ([1.0] * len(parts), [even] * len(parts), share_by_size(sizes))
    return min(
        measure_distance(
            whole, np.sum([w * p for w, p in zip(k, parts, strict=True)], 0)
        )
        for k in kinds
    )
