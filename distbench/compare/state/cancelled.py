"""Sums of which the terms may cancel, so that what is left of them is rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np

from distbench.compare.arrays.aligned import align_values, measure_apart
from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.noise import Whole
from distbench.compare.arrays.ratio import share_by_size
from distbench.trace import GRADIENTS, Phase, SparseRows, Trace, TraceKey, Value
from distbench.trace.numbers import (
    Array,
    densify,
    measure_distance,
    measure_finite,
    name_value,
)

_OWN: Phase = "local_gradient"


def find_cancelled(
    reference: Trace,
    twins: Sequence[Trace],
    wholes: Mapping[TraceKey, Whole],
    rounded: Sequence[Trace] = (),
    narrowest: str = "",
) -> dict[TraceKey, Whole]:
    """Sizes of what such sums over the global batch are rounded in: gradients, losses.

    Before a batch normalisation, or where as many errors have one sign as the other,
    what is left of all terms is no size that rounding has a part of, and twins may
    repeat it: they round alike. Replicas need not. Where such a sum is less than half
    of the digits of its terms, or of its step's largest gradient, its size is that of
    its terms: the largest that a shard has in its step, or that one device has of it in
    any step or shard, which counts up to the largest gradient or loss of its step:
    another step may be an odd one. Shards that are rounding as well may have more of
    it, as many times as they are larger.

    In each shard the terms may cancel too. If all that is known of it is less than
    three quarters of those digits, and each twin repeats it or keeps no digit of it, it
    is of a size of which one rounding is what its shards leave of it together.

    Args:
        reference: One device, with its shards.
        twins: Runs that differ from it by rounding.
        wholes: Sizes of its values of the global batch.
        rounded: Runs that differ from it by rounding in a narrower dtype. Of what is
            left, none of them keeps a digit if that is rounding in this one.
        narrowest: That dtype.
    """
    narrow = find_roundoff(narrowest)
    sums = {k: w for k, w in wholes.items() if k.phase in ("loss", *GRADIENTS)}
    largest: dict[tuple[int, str], float] = {}
    shards: dict[TraceKey, float] = {}
    known: dict[TraceKey, float] = {}
    for key, whole in sums.items():
        place = key.step, key.phase
        largest[place] = max(largest.get(place, 0.0), whole.size)
        if key == _find_source(key):
            shards[key] = measure_shards(reference, key)
            anywhere = replace(key, step=0)
            known[anywhere] = max(known.get(anywhere, 0.0), whole.size, shards[key])
    measure_left = cache(partial(_measure_left, reference))
    found = {}
    for key, whole in sums.items():
        # What is made of a gradient has its terms, as they are in its own units.
        source = _find_source(key)
        unit = 1.0
        if key != source and (base := largest.get((key.step, source.phase), 0.0)):
            unit = largest[key.step, key.phase] / base
        most, loss = (largest.get((key.step, phase), 0.0) for phase in (_OWN, "loss"))
        shard = unit * shards.get(source, 0.0)
        other = unit * known.get(replace(source, step=0), 0.0)
        most, reach = unit * most, unit * max(most, loss)
        value = reference.values[key]
        u = find_roundoff(name_value(value))
        terms = max(most, shard, min(other, reach))
        may_be_narrow = u < narrow and whole.size < math.sqrt(narrow) * terms
        if may_be_narrow and _is_lost(value, whole.size, key, rounded):
            u = narrow
        if whole.size < math.sqrt(u) * terms:
            left = unit * measure_left(source)
            is_small = max(whole.size, shard, left) < u**0.75 * most
            is_left = is_small and _is_residue(value, whole.size, key, twins)
            left = left / u if is_left else 0.0
            size = max(whole.size, shard, min(max(left, other), reach))
            is_rounding = 0 < whole.size < shard < math.sqrt(u) * most
            spread = shard / whole.size if is_rounding else 1.0
            found[key] = replace(whole, size=size, spread=spread)
    return found


def _find_source(key: TraceKey) -> TraceKey:
    """Of what something is made: a loss of itself, a gradient of what a tape gave."""
    return key if key.phase == "loss" else replace(key, phase=_OWN)


def measure_shards(reference: Trace, key: TraceKey) -> float:
    """The largest that a shard has of a sum over the global batch."""
    return max(map(_measure_own, reference.get_replicas(key)), default=0.0)


def _measure_own(value: Value) -> float:
    """The largest number of a value: of all, so what is quick as it is stays so."""
    if isinstance(value, SparseRows):
        return measure_finite(align_values((value,))[0].total)
    # NumPy compares narrow numbers one by one.
    return measure_finite(densify(value) if value.dtype.itemsize < 4 else value)


def _measure_left(reference: Trace, key: TraceKey) -> float:
    """What shards leave of a sum over the global batch."""
    value, others = reference.get(key), reference.get_replicas(key)
    if value is None or not others:
        return 0.0
    whole, *parts = (found.total for found in align_values((value, *others)))
    return _measure_rest(whole, parts, reference.get_shards(key.step))


def _is_residue(
    value: Value, size: float, key: TraceKey, twins: Sequence[Trace]
) -> bool:
    """Whether each twin has the very same number, or another one altogether."""
    gaps = _measure_gaps(value, key, twins)
    return all(gap == 0 or gap >= size / 2 for gap in gaps)


def _is_lost(value: Value, size: float, key: TraceKey, twins: Sequence[Trace]) -> bool:
    """Whether each twin has another number altogether, and there are any."""
    gaps = _measure_gaps(value, key, twins)
    return bool(gaps) and all(gap >= size / 2 for gap in gaps)


def _measure_gaps(value: Value, key: TraceKey, twins: Sequence[Trace]) -> list[float]:
    others = (twin.get(key) for twin in twins)
    return [measure_apart(value, other) for other in others if other is not None]


def _measure_rest(whole: Array, parts: Sequence[Array], sizes: Sequence[int]) -> float:
    """What parts leave of a whole at least: summed, averaged or weighed by sizes."""
    even = 1 / len(parts)
    kinds = ([1.0] * len(parts), [even] * len(parts), share_by_size(sizes))
    return min(measure_distance(whole, _weigh(kind, parts)) for kind in kinds)


def _weigh(weights: Sequence[float], parts: Sequence[Array]) -> Array:
    total = np.zeros_like(parts[0])
    for weight, part in zip(weights, parts, strict=True):
        total += weight * part
    return total
