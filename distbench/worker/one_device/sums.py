"""Sums of the replicas' own gradients, right and wrong ones, to be fed to one device.

A program that sums by hand shows its gradients and the state that it leaves, and not
what it made of the gradients in between. What the state would be after each of these
sums, one device says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from distbench.trace import SparseRows, Trace, TraceKey, Value, Values, get_numbers
from distbench.trace.dtypes import find_dtype
from distbench.trace.numbers import densify

Numbers = npt.NDArray[np.float64]

_SAME = 2.0**-18
"""Share of a number that a few roundings in float32 move it by at most."""
_MOST_DROPPED = 4
"""Of more replicas than these only one alone is left out, or kept, at a time."""
_MOST_ORDERS = 8
"""So many replicas may be the first to be added."""
NARROW = ("bfloat16", "float16")
"""Dtypes in which gradients travel though they were computed in a wider one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """A way to add up what the replicas have.

    Attributes:
        kept: The replicas that are added up, in the order in which they are.
        factor: What the sum is multiplied by.
        narrow: A dtype to which each addend is rounded; empty for none.
        partial: Whether each partial sum is rounded to it as well, and not the last
            alone.
    """

    kept: tuple[int, ...]
    factor: float = 1.0
    narrow: str = ""
    partial: bool = True

    def add_up(self, values: Sequence[Value]) -> Value:
        """The sum of a variable's gradients, one for each replica."""
        own = get_numbers(values[0]).dtype
        addends = [densify(values[replica]) for replica in self.kept]
        if not self.factor:
            # Of Inf as well: these are the gradients of a step that takes none.
            return _pack(np.zeros(addends[0].shape, own), values)
        if not self.narrow:
            total = self.factor * np.sum(addends, axis=0)
            return _pack(total.astype(own), values)
        dtype = find_dtype(self.narrow)
        total = addends[0].astype(dtype)
        for addend in addends[1:]:
            if self.partial:
                total = total + addend.astype(dtype)
            else:
                total = total.astype(np.float64) + addend.astype(dtype)
        if self.factor != 1:
            # TensorFlow's graphs multiply by the reciprocal of a constant.
            total = total.astype(dtype) * np.asarray(self.factor, dtype)
        return _pack(total.astype(dtype).astype(own), values)


def list_sums(replicas: int) -> Iterator[Sum]:
    """Ways to sum in the own dtype that are known to occur; the right one first."""
    everyone = tuple(range(replicas))
    yield Sum(kept=everyone)
    yield Sum(kept=everyone, factor=1 / replicas)
    yield Sum(kept=everyone, factor=float(replicas))
    sizes = range(1, replicas) if replicas <= _MOST_DROPPED else (1, replicas - 1)
    for size in sizes:
        for kept in combinations(everyone, size):
            yield Sum(kept=kept)
    if replicas <= _MOST_DROPPED:
        # What a replica may take for the sum where it knows its own gradient alone.
        for replica in everyone:
            yield Sum(kept=(replica,), factor=float(replicas))


def list_narrow_sums(
    replicas: int, narrow: str, is_mean: bool = False
) -> tuple[Sum, ...]:
    """Ways to sum or average in a narrower dtype, each element in one of them.

    A ring begins each part of what it sums with another replica, and a tree may add up
    in a wider dtype: which element is summed in which order is not known.
    """
    everyone = tuple(range(replicas))
    plain = Sum(kept=everyone, factor=1 / replicas if is_mean else 1.0, narrow=narrow)
    if replicas <= 2:
        return (plain,)
    orders = [
        replace(plain, kept=(*everyone[first:], *everyone[:first]))
        for first in everyone[:_MOST_ORDERS]
    ]
    return (*orders, replace(plain, partial=False))


def add_gradients(observed: Trace, way: Sum) -> Trace:
    """The local gradients of a cluster added up, as those of one replica."""
    values: Values[TraceKey] = Values()
    for key, _ in observed.select(phase="local_gradient", replica=0):
        if found := observed.get_replicas(key):
            values[key] = way.add_up(found)
    return replace(observed, replicas=1, values=values)


def join_rows(observed: Trace, summed: Trace) -> Trace:
    """A sum whose rows are those of all replicas, one beside the other.

    As where each replica adds up its own slices of a row, and gathers those of all.

    Args:
        observed: What the cluster recorded.
        summed: The sum of its local gradients, as those of one replica.
    """
    values: Values[TraceKey] = Values(summed.values)
    for key, value in summed.values.items():
        found = observed.get_replicas(key)
        sparse = [own for own in found or () if isinstance(own, SparseRows)]
        if isinstance(value, SparseRows) and len(sparse) == observed.replicas:
            own_sums = [own.merge() for own in sparse]
            values[key] = replace(
                value,
                indices=np.concatenate([own.indices for own in own_sums]),
                values=np.concatenate([own.values for own in own_sums]).astype(
                    value.values.dtype
                ),
            )
    return replace(summed, values=values)


def mix_sums(observed: Trace, fed: Sequence[Trace], left: Sequence[Trace]) -> Trace:
    """Sums of which each element is the one that leads to what was observed.

    Args:
        observed: What the cluster recorded.
        fed: Sums, as local gradients of one replica.
        left: What one device makes of each of them.
    """
    values: Values[TraceKey] = Values()
    for key, value in fed[0].values.items():
        sums = [densify(trace.values[key]) for trace in fed]
        total = sums[0]
        reduced = observed.get(replace(key, phase="reduced_gradient"))
        # One that is handed flat, or packed with a statistic, has places of its own.
        is_alike = reduced is not None and reduced.shape == total.shape
        place = replace(key, phase="reduced_gradient" if is_alike else "variable")
        seen, after = observed.get(place), [trace.get(place) for trace in left]
        if (
            seen is not None
            and (scaled := _match_scaled(densify(seen), sums)) is not None
        ):
            total = scaled
        elif seen is not None and all(v is not None for v in after):
            known = [densify(v) for v in after if v is not None]
            total, _ = _pick(densify(seen), sums, known)
        values[key] = _pack(total.astype(get_numbers(value).dtype), [value])
    return replace(fed[0], values=values)


def _match_scaled(seen: Numbers, sums: Sequence[Numbers]) -> Numbers | None:
    """Elements that are all one number apart from what was seen, as behind a clip.

    The norm that scales them is made of all, so no sum alone leads to any of them.
    """
    if not seen.size:
        return None
    largest = np.unravel_index(int(np.argmax(np.abs(seen))), seen.shape)
    for one in sums:
        scale = seen[largest] / one[largest] if one[largest] else 0.0
        total, off = _pick(seen, sums, [scale * each for each in sums])
        if scale and np.all(off <= _SAME * np.abs(seen)):
            return total
    return None


def _pick(
    seen: Numbers, sums: Sequence[Numbers], after: Sequence[Numbers]
) -> tuple[Numbers, Numbers]:
    """Of each element the sum that leads nearest to it, and how near that is."""
    total, least = sums[0], np.full(seen.shape, np.inf)
    for one, known in zip(sums, after, strict=True):
        off = np.abs(known - seen)
        total, least = np.where(off < least, one, total), np.minimum(off, least)
    return total, least


def _pack(total: npt.NDArray[np.generic], values: Sequence[Value]) -> Value:
    """A sum in the form of its addends: sparse where one of them is."""
    sparse = [value for value in values if isinstance(value, SparseRows)]
    if not sparse:
        return total
    rows = np.flatnonzero(np.sum([value.count_rows() for value in sparse], axis=0))
    return SparseRows(indices=rows, values=total[rows], shape=sparse[0].shape)
