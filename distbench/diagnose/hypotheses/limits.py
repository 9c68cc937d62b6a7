"""The limit of a clip that is taken of addends, fitted to what became of their sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from distbench.diagnose.clues.addends import Source
from distbench.diagnose.hypotheses.norms import Norm
from distbench.trace.numbers import Array, measure_size

_ENOUGH = 2048
"""Elements of a large value that a limit is fitted to, twice: it is one number, and
what it foretells is held against all."""
_LESS = 0.5
"""A clip leaves less than that share of the squares of what no clip at all leaves."""
_FOLLOWED = 1 << 15
"""Elements of all values of which the way of what a limit leaves is followed."""


def find_share(size: float | Array, limit: float) -> Array:
    """What a clip leaves of values of a size: min(1, limit / size)."""
    size = np.asarray(size)
    return np.minimum(
        1.0, np.divide(limit, size, out=np.ones(size.shape), where=size > 0)
    )


def sum_clipped(source: Source, norm: Norm, limit: float, mean: float = 1.0) -> Array:
    """What is left of a sum whose addends are clipped first."""
    total = np.zeros_like(source.case.expected)
    for place, term in enumerate(source.terms):
        total = total + mean * find_share(norm(source, place), limit) * term
    return total


def find_below(sources: Sequence[Source], norm: Norm, limit: float) -> frozenset[int]:
    """Numbers of the values of which a clip leaves all addends as they are."""
    return frozenset(
        source.number
        for source in sources
        if all(
            np.all(norm(source, place) <= limit) for place in range(len(source.terms))
        )
    )


def fit_limit(sources: Sequence[Source], norm: Norm, mean: float = 1.0) -> float | None:
    """The limit that leaves least of what was observed; None if it would clip nothing.

    Σ_r g_r min(1, c/‖g_r‖) is linear in c between any two norms that follow each
    other, so what it leaves, squared, is a parabola there. From the lowest point of all
    of them Newton's iteration goes on with all elements. Every value weighs alike.
    """
    sums = _join_sums(
        [_make_sum(source, norm, mean) for source in sources if source.arrived]
    )
    sizes = np.concatenate([one.norms.ravel() for one in sums] or [np.zeros(0)])
    sizes = sizes[np.isfinite(sizes)]
    if not np.any(sizes):
        return None
    lowest = _find_lowest([one.list_bends() for one in sums])
    limits = (lowest, _refine(sums, lowest))
    best = min(limits, key=lambda limit: _measure_rest(sums, limit))
    if not 0 < best < float(sizes.max()):
        return None
    # Where nothing is clipped, the lowest point may lie just below the largest norm.
    is_clip = _measure_rest(sums, best) < _LESS * _measure_rest(sums, math.inf)
    return best if is_clip else None


def _measure_rest(sums: Sequence[_ClippedSum], limit: float) -> float:
    return sum(one.measure_rest(limit) for one in sums)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ClippedSum:
    """Σ_r g_r min(1, c/‖g_r‖) of elements, against what was observed of them.

    Attributes:
        observed: [elements].
        terms: By addend: [addends, elements].
        norms: What each element is clipped by: [addends, elements].
    """

    observed: Array
    terms: Array
    norms: Array

    def find_rest(self, limit: float) -> Array:
        """What is left of the observed value."""
        shares = find_share(self.norms, limit)
        return np.asarray(self.observed - np.sum(shares * self.terms, axis=0))

    def find_slope(self, limit: float) -> Array:
        """By how much the sum grows with the limit."""
        none = np.zeros(self.terms.shape)
        clipped = self.norms > limit
        return np.asarray(
            np.sum(np.divide(self.terms, self.norms, out=none, where=clipped), axis=0)
        )

    def list_bends(self) -> Array:
        """Where the square of what is left, p - 2 q c + s c², becomes another parabola.

        Of many elements some tell it.

        Returns:
            [4, addends + 1, elements]: from which c on, and by how much p, q and s
            are then others.
        """
        some = slice(None, None, 1 + len(self.observed) // _FOLLOWED)
        order = np.argsort(self.norms[:, some], axis=0)
        norms = np.take_along_axis(self.norms[:, some], order, axis=0)
        terms = np.take_along_axis(self.terms[:, some], order, axis=0)
        ends = np.zeros((1, norms.shape[1]))
        slopes = np.divide(terms, norms, out=np.zeros(terms.shape), where=norms > 0)
        slopes = np.concatenate([np.cumsum(slopes[::-1], axis=0)[::-1], ends])
        rest = self.observed[some] - np.concatenate([ends, np.cumsum(terms, axis=0)])
        parabolas = np.stack([rest * rest, rest * slopes, slopes * slopes])
        starts = np.concatenate([ends, norms])
        return np.concatenate([starts[None], np.diff(parabolas, axis=1, prepend=0.0)])

    def measure_rest(self, limit: float) -> float:
        """Sum of the squares of what is left."""
        return float(np.sum(self.find_rest(limit) ** 2))


def _make_sum(source: Source, norm: Norm, mean: float) -> _ClippedSum:
    """One value, scaled so that each weighs alike.

    Of a large value some elements do: those in which it is furthest from the plain sum,
    which a clip has changed, and as many others.
    """
    observed = source.case.observed
    terms = [mean * term for term in source.terms]
    scale = max(map(measure_size, (observed, *terms)))
    picked = _pick_elements(observed, terms)
    kept = np.array([term.ravel()[picked] for term in terms])
    norms = np.empty(kept.shape)
    for place, row in enumerate(norms):
        found = norm(source, place)
        if isinstance(found, np.ndarray):
            found = np.broadcast_to(found, observed.shape).ravel()[picked]
        row[:] = found
    return _ClippedSum(
        observed=observed.ravel()[picked] / scale, terms=kept / scale, norms=norms
    )


def _join_sums(sums: Sequence[_ClippedSum]) -> list[_ClippedSum]:
    """Those of as many addends as one, so that a step takes few calls."""
    groups: dict[int, list[_ClippedSum]] = {}
    for one in sums:
        groups.setdefault(len(one.terms), []).append(one)
    return [
        _ClippedSum(
            observed=np.concatenate([one.observed for one in group]),
            terms=np.concatenate([one.terms for one in group], axis=1),
            norms=np.concatenate([one.norms for one in group], axis=1),
        )
        for group in groups.values()
    ]


def _pick_elements(
    observed: Array, terms: Sequence[Array]
) -> npt.NDArray[np.int_] | slice:
    """Places of elements of a value, made flat: where most is left, and others."""
    if observed.size <= 2 * _ENOUGH:
        return slice(None)
    rest = np.abs(observed - sum(terms)).ravel()
    largest = np.argpartition(rest, -_ENOUGH)[-_ENOUGH:]
    others = np.random.default_rng(0).integers(0, rest.size, _ENOUGH)
    return np.concatenate([largest, others])


def _find_lowest(bends: Sequence[Array]) -> float:
    """Where the sum of parabolas of `list_bends` is lowest, up to the last bend."""
    starts, *changes = np.concatenate([one.reshape(4, -1) for one in bends], axis=1)
    order = np.argsort(starts, kind="stable")
    first = starts[order]
    # Of bends at one place the last one has them all.
    whole = np.isfinite(first) & (first != np.append(first[1:], np.inf))
    squares, products, slopes = (np.cumsum(change[order])[whole] for change in changes)
    first = first[whole]
    last = np.append(first[1:], first[-1])
    lowest = np.divide(products, slopes, out=first.copy(), where=slopes > 0)
    lowest = np.clip(lowest, first, last)
    rest = squares + lowest * (slopes * lowest - 2 * products)
    return float(lowest[np.argmin(rest)])


def _refine(sums: Sequence[_ClippedSum], limit: float) -> float:
    for _ in range(25):
        upper = lower = 0.0
        for one in sums:
            slope = one.find_slope(limit)
            upper += float(np.sum(one.find_rest(limit) * slope))
            lower += float(np.sum(slope * slope))
        if lower == 0:
            break
        move = upper / lower
        limit = max(limit + move, 0.0)
        if abs(move) <= 1e-12 * limit:
            break
    return limit
