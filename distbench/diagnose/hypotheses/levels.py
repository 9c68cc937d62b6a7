"""Whole numbers, or multiples of a unit, that replicas send for their gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME
from distbench.diagnose.clues.addends import ADDED, Source, list_sources
from distbench.diagnose.clues.cases import find_tolerance
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import NONLINEAR, Hypothesis
from distbench.diagnose.names import name_replicas
from distbench.trace import WHOLE
from distbench.trace.numbers import Array, measure_norm, measure_size

_LEVELS = (1, 3, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256)
"""As many as some bits hold."""
_MOST_LEVELS = 256
_ENOUGH = 6
"""Numbers of a value that do not lie on many grids by chance."""
Units = Sequence[float]
"""What 1 stands for in each replica's numbers."""

_SIZES: tuple[tuple[str, Callable[[Array], float]], ...] = (
    ("the largest element", measure_size),
    ("the norm", measure_norm),
)
_ROUNDED: tuple[tuple[str, Callable[[Array], Array]], ...] = (
    ("rounded", np.round),
    ("cut off", np.trunc),
)
"""How whole numbers are made of others."""


def explain_by_levels(context: Context) -> Iterator[Hypothesis]:
    """Each replica rounds its gradient to levels, the highest at the largest element.

    That may be the largest of its own gradient, or of all replicas'.
    """
    if context.phase not in ADDED:
        return
    sources = list_sources(context)
    for shared, whose in ((False, ""), (True, " of the largest element of all")):
        for levels in (*_LEVELS, *_find_levels(context, sources, shared=shared)):
            yield Hypothesis(
                code=NONLINEAR,
                predicted={
                    s.number: _sum_quantised(s, levels, shared=shared) for s in sources
                },
                detail=f"every replica rounds its gradient to {levels} levels{whose} "
                "before the sum",
            )


def _find_levels(
    context: Context, sources: Sequence[Source], *, shared: bool
) -> Iterator[int]:
    """Other numbers of levels that fit the smallest value with enough numbers."""
    fit = [s for s in sources if s.arrived and s.case.observed.size >= _ENOUGH]
    if not fit:
        return
    probe = min(fit, key=lambda source: source.case.observed.size)
    tolerance = find_tolerance(probe.case, context.replicas)
    for levels in _screen_levels(probe, tolerance, shared=shared):
        made = _sum_quantised(probe, levels, shared=shared)
        if np.all(np.abs(probe.case.observed - made) <= tolerance):
            yield levels


def _screen_levels(
    source: Source, tolerance: Array | float, *, shared: bool
) -> list[int]:
    """Numbers of levels that fit the first numbers of a value: hardly any do."""
    few = slice(_ENOUGH)
    found = np.array([n for n in range(2, _MOST_LEVELS) if n not in _LEVELS])
    made = _add_quantised(
        [term.ravel()[few] for term in source.terms],
        _list_tops(source, shared=shared),
        found[:, None],
    )
    rest = np.abs(source.case.observed.ravel()[few] - made)
    allowed = np.broadcast_to(tolerance, source.case.observed.shape)
    return [int(n) for n in found[(rest <= allowed.ravel()[few]).all(axis=1)]]


def _sum_quantised(source: Source, levels: int, *, shared: bool) -> Array:
    return _add_quantised(source.terms, _list_tops(source, shared=shared), levels)


def _list_tops(source: Source, *, shared: bool) -> Units:
    """What the highest level of each addend stands for."""
    sizes = [measure_size(term) for term in source.terms]
    return [max(sizes)] * len(sizes) if shared else sizes


def _add_quantised(
    terms: Sequence[Array], tops: Units, levels: int | npt.NDArray[np.int_]
) -> Array:
    """Add up what rounding to a number of levels leaves, or to each of [n, 1]."""
    total = np.zeros(np.broadcast_shapes(terms[0].shape, np.shape(levels)))
    for term, top in zip(terms, tops, strict=True):
        if top > 0:
            unit = top / levels
            total = total + np.round(term / unit) * unit
    return total


def explain_by_other_unit(context: Context) -> Iterator[Hypothesis]:
    """Whole numbers of each replica's own unit, which are read with another one.

    Σ_r round(g_r / u_r) · U in place of Σ_r round(g_r / u_r) · u_r. U is what the sum
    is a multiple of, so the number of levels follows from it.
    """
    if context.phase not in ADDED or context.replicas == 1:
        return
    sources = [s for s in list_sources(context) if len(s.terms) == context.replicas]
    seen = [
        (source, unit)
        for source in sources
        if source.arrived and (unit := _find_unit(source.case))
    ]
    ways = itertools.product(_list_readers(context.replicas), _SIZES, _ROUNDED)
    for (whose, read), (what, measure), (made, cut) in ways:
        found = [
            read(source, [measure(term) for term in source.terms]) / unit
            for source, unit in seen
        ]
        for levels in _list_whole(found):
            yield Hypothesis(
                code=NONLINEAR,
                predicted={
                    s.number: _read_whole(
                        s, [measure(t) / levels for t in s.terms], read, cut
                    )
                    for s in sources
                },
                detail="every replica sends whole numbers of its own unit, 1 to "
                f"{levels} for {what} of its gradient, {made}; they are added up and "
                f"read with {whose}",
            )


Read = Callable[[Source, Units], float]
"""The unit with which a sum of whole numbers is read."""


def _list_readers(replicas: int) -> Iterator[tuple[str, Read]]:
    yield "the mean of the replicas' units", lambda _, units: float(np.mean(units))
    for replica in range(replicas):
        yield (
            f"the unit of {name_replicas((replica,))}",
            lambda _, units, r=replica: units[r],  # type: ignore[misc]
        )
    yield "the largest of the replicas' units", lambda _, units: max(units)
    yield "the smallest of the replicas' units", lambda _, units: min(units)
    yield "the sum of the replicas' units", lambda _, units: float(np.sum(units))
    yield (
        "the unit of each replica that reads them",
        lambda source, units: (
            math.nan  # nobody reads a sum that is seen once
            if source.case.key.replica == WHOLE
            else units[source.case.key.replica]
        ),
    )


def _list_whole(numbers: Sequence[float]) -> list[int]:
    """The two most frequent whole numbers from 2 among some."""
    found = [
        round(n)
        for n in numbers
        if np.isfinite(n) and n > 1.5 and abs(n - round(n)) <= SAME * n
    ]
    return sorted(set(found), key=lambda whole: (-found.count(whole), whole))[:2]


def _read_whole(
    source: Source, units: Units, read: Read, cut: Callable[[Array], Array]
) -> Array:
    total = 0 * source.case.expected
    for term, unit in zip(source.terms, units, strict=True):
        total = total + (cut(term / unit) if unit > 0 else 0)
    return np.asarray(total * read(source, units))


def explain_by_grid(context: Context) -> Iterator[Hypothesis]:
    """All observed values lie on a grid on which the replicas' gradients do not.

    Holds for rounding to the nearest and for stochastic rounding alike.
    """
    if context.phase not in ADDED:
        return
    sources = [source for source in list_sources(context) if source.arrived]
    units = sorted(filter(None, (_find_unit(source.case) for source in sources)))
    if not units:
        return
    # A few values may lie on a coarser grid by chance, so the finest counts for all.
    unit = units[0]
    predicted: dict[int, Array] = {}
    for source in sources:
        case = source.case
        off = np.abs(case.observed - case.expected)
        tolerance = 16 * find_roundoff(case.dtype) * measure_size(case.observed)
        if (
            np.all(off <= unit * len(source.terms) * (1 + 1e-6))
            and _lies_on(case.observed, unit, tolerance)
            and not _lies_on(case.expected, unit, tolerance)
        ):
            predicted[source.number] = case.observed
    yield Hypothesis(
        code=NONLINEAR,
        predicted=predicted,
        detail=f"the values are multiples of {unit:.6g}: every replica rounds its "
        "gradient before the sum",
    )


def _lies_on(values: Array, unit: float, tolerance: float) -> bool:
    return bool(np.all(np.abs(values - np.round(values / unit) * unit) <= tolerance))


def _find_unit(case: Pair) -> float | None:
    """The largest step of which all numbers are integer multiples, if there is one."""
    values, u = case.observed, find_roundoff(case.dtype)
    sizes = np.unique(np.abs(values[values != 0]))
    if len(sizes) < 3 or not u:
        return None
    gaps = np.diff(sizes)
    tolerance = 16 * u * float(sizes[-1])
    gaps = gaps[gaps > tolerance]
    smallest = min([float(sizes[0]), *map(float, gaps)])
    for part in (1, 2, 3):
        multiples = np.round(sizes * part / smallest)
        # The gap carries the rounding of two values; all values together do not.
        unit = float(multiples @ sizes) / float(multiples @ multiples)
        if _lies_on(sizes, unit, tolerance):
            return unit if unit > 8 * tolerance else None
    return None
