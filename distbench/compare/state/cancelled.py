"""Gradients of which the terms may cancel, so that what is left of them is rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.noise import Whole
from distbench.compare.arrays.ratio import share_by_size
from distbench.trace import GRADIENTS, Trace, TraceKey, Value
from distbench.trace.numbers import (
    Array,
    densify,
    measure_distance,
    measure_finite,
    name_value,
)


def find_cancelled(
    reference: Trace, twins: Sequence[Trace], wholes: Mapping[TraceKey, Whole]
) -> dict[TraceKey, Whole]:
    """Sizes of what such gradients of the global batch are rounded in.

    Before a batch normalisation, or where as many errors have one sign as the other,
    what is left of all terms is no size that rounding has a part of, and twins may
    repeat it: they round alike. Replicas need not. Where a gradient is less than half
    of the digits of its step's largest one, its size is the largest that one device has
    of it in any step, or of a shard, but no more than the step's largest one. Shards
    that are rounding as well may have more of it, as many times as they are larger.

    In each shard the terms may cancel too. If all that is known of it is less than
    three quarters of those digits, and each twin repeats it or keeps no digit of it, it
    is of a size of which one rounding is what its shards leave of it together.

    Args:
        reference: One device, with its shards.
        twins: Runs that differ from it by rounding.
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
    # Of what is made of a gradient the terms are the same.
    measure_terms = cache(partial(_measure_terms, reference))
    found = {}
    for key, whole in gradients.items():
        most = largest[key.step, key.phase]
        value = reference.values[key]
        u = find_roundoff(name_value(value))
        least = math.sqrt(u) * most
        if whole.size < least:
            shard, left = measure_terms(replace(key, phase="local_gradient"))
            is_small = max(whole.size, shard, left) < u**0.75 * most
            is_left = is_small and _is_residue(value, whole.size, key, twins)
            left = left / u if is_left else 0.0
            other = own.get((key.variable, key.call), 0.0)
            size = max(whole.size, min(max(shard, left, other), most))
            is_rounding = 0 < whole.size < shard < least
            spread = shard / whole.size if is_rounding else 1.0
            found[key] = replace(whole, size=size, spread=spread)
    return found


def _measure_terms(reference: Trace, key: TraceKey) -> tuple[float, float]:
    """The largest of shards, and what they leave of the whole.

    Args:
        reference: One device.
        key: A gradient of the global batch.
    """
    whole, shards = reference.get(key), reference.get_replicas(key)
    if whole is None or not shards:
        return 0.0, 0.0
    due, parts = densify(whole), list(map(densify, shards))
    left = _measure_rest(due, parts, reference.get_shards(key.step))
    return max(map(measure_finite, parts)), left


def _is_residue(
    value: Value, size: float, key: TraceKey, twins: Sequence[Trace]
) -> bool:
    """Whether each twin has the very same number, or another one altogether."""
    others = (twin.get(key) for twin in twins)
    gaps = [
        measure_distance(densify(value), densify(other))
        for other in others
        if other is not None
    ]
    return all(gap == 0 or gap >= size / 2 for gap in gaps)


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
