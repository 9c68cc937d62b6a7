"""What shards alone make of state, joined, and how far the whole batch's lies off.

Where one device makes the same of its shards as of the whole batch, what is left
between them is rounding. The twins do not show all of that: a value that is added and
taken away again, as in `a + (b - a) * t`, rounds alike in all of them, and otherwise on
each shard.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from distbench.compare.arrays.bounds import bound_sum, find_roundoff
from distbench.compare.arrays.likeness import find_half
from distbench.compare.arrays.measure import BITWISE
from distbench.compare.nature.lost import measure_lost
from distbench.compare.state.led_shards import Led, collect_led, weigh_by_size
from distbench.evidence import Evidence
from distbench.trace import TraceKey
from distbench.trace.numbers import Array, densify, measure_size, name_value


def list_ways(evidence: Evidence, led: Led) -> list[Array]:
    """How copies may join the shards' changes: weighed by size, averaged, added up.

    With its examples twice a shard adds twice as much to a count, and as much to a
    mean. Where that makes up what one device has of the whole batch, counts have to be
    added up and means to be averaged; else nobody tells.
    """
    whole = evidence.reference.get(led.key)
    ways = list(_list_counted(evidence, led))
    if ways and whole is not None and led.is_near(densify(whole), ways[0]):
        return ways
    return list(_list_plain(evidence, led))


def _list_counted(evidence: Evidence, led: Led) -> Iterator[Array]:
    if led.doubles:
        counts = led.list_counts()
        yield led.join(counts, weigh_by_size(evidence, led))
        yield led.join(counts, _weigh_evenly(led))


def _list_plain(evidence: Evidence, led: Led) -> Iterator[Array]:
    nothing = [0 * shard for shard in led.shards]
    yield led.join(nothing, weigh_by_size(evidence, led))
    yield led.join(nothing, _weigh_evenly(led))
    yield led.join([shard - led.before for shard in led.shards], _weigh_evenly(led))


def _weigh_evenly(led: Led) -> list[float]:
    return [1 / len(led.shards)] * len(led.shards)


def find_alike(evidence: Evidence, key: TraceKey) -> Array | None:
    """What the shards of one device make of state that the examples lead.

    Args:
        evidence: What was seen.
        key: The state after a step; replica `WHOLE`.

    Returns:
        What is nearest to the whole batch's of all that may be made of them. None if
        that is not alike in half of the digits of what the step changes, as far as it
        leaves that, or no shard was run alone: what is left between them is more than
        rounding then. Of a float64 state in a step that computes in fewer digits it is
        as much as a sum in float32 may lose: a step may send it so.
    """
    whole, led = evidence.reference.get(key), collect_led(evidence, key, BITWISE)
    if whole is None or led is None:
        return None
    due = densify(whole)
    ways = (*_list_counted(evidence, led), *_list_plain(evidence, led))
    nearest = min(ways, key=lambda way: measure_size(way - due))
    left = measure_size(nearest - due)
    # What starts from a number that stands for nothing known loses that.
    change = min(measure_size(due - led.before), measure_size(due))
    half = find_half(name_value(whole)) * change
    narrow = bound_narrow_sum(evidence, key, name_value(whole))
    return nearest if left <= max(half, narrow) else None


def bound_narrow_sum(evidence: Evidence, key: TraceKey, dtype: str) -> float:
    """What is lost of a float64 state if a step sums in float32, as it may.

    What each shard changes is rounded, and so is each sum of these, on one device and
    on a cluster. 0 of other state, and where a step computes in float64 throughout or
    what it loses is allowed anyway.

    Args:
        evidence: What was seen.
        key: The state after a step; replica `WHOLE`.
        dtype: That of the state.
    """
    u = find_roundoff("float32")
    is_wider = 0 < find_roundoff(dtype) < u <= find_roundoff(evidence.narrowest)
    if not is_wider or measure_lost(evidence):
        return 0.0
    led = collect_led(evidence, key, BITWISE)
    if led is None:
        return 0.0
    changes = np.sum([np.abs(shard - led.before) for shard in led.shards], axis=0)
    return measure_size(bound_sum(changes, len(led.shards) + 2, u))
