"""What became of the replicas' own gradients when they were reduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distbench.compare.arrays.addends import Widened, collect_addends
from distbench.compare.arrays.aligned import align_value, join_rows
from distbench.compare.arrays.bounds import bound_sum, find_roundoff
from distbench.compare.arrays.likeness import find_half
from distbench.compare.arrays.ratio import fit_ratio
from distbench.compare.recorded.places import RunDifference
from distbench.trace import Trace, TraceKey
from distbench.trace.numbers import Array, name_value


@dataclass(frozen=True, slots=True)
class _Guess:
    """What a reduced gradient may be.

    Attributes:
        words: That, in words.
        make: That, of the replicas' own gradients and the number of one's own.
        multiple: How many sums it is, whose errors it has, of so many replicas.
    """

    words: str
    make: Callable[[Sequence[Array], int], Array]
    multiple: Callable[[int], int] = lambda _: 1


_GUESSES = (
    _Guess(
        "the sum of what the replicas computed", lambda terms, _: np.sum(terms, axis=0)
    ),
    _Guess(
        "the mean of what the replicas computed",
        lambda terms, _: np.mean(terms, axis=0),
    ),
    _Guess(
        "what the replica computed by itself, not reduced",
        lambda terms, own: terms[own],
    ),
    _Guess(
        "N times the sum of what the replicas computed",
        lambda terms, _: len(terms) * np.sum(terms, axis=0),
        multiple=lambda replicas: replicas,
    ),
)


def describe_reduction(trace: Trace, key: TraceKey) -> str | None:
    """In words what a reduced gradient is, of the local ones of the same run.

    Args:
        trace: A run.
        key: Place of a reduced gradient; of `WHOLE` the first replica's is taken.

    Returns:
        None where not all that it takes was recorded, or there is one replica, or each
        row has so many slices that their sum may be anything.
    """
    own = max(key.replica, 0)
    reduced = trace.get(replace(key, phase="reduced_gradient", replica=own))
    terms = trace.get_replicas(replace(key, phase="local_gradient"))
    if reduced is None or len(terms) < 2:
        return None
    rows = join_rows((reduced, *terms))
    seen, addends = align_value(reduced, rows), collect_addends(terms, rows, 1.0)
    dtype = name_value(reduced)
    # One rounding for each addition, and two for what a mean is divided by.
    bound = bound_sum(addends.measure(), addends.count() + 1, find_roundoff(dtype))
    known = np.isfinite(bound)
    if not known.any() and known.size:
        return None
    found, bound = seen.total[known], bound[known]
    totals = [term[known] for term in Widened(addends.totals)]
    for guess in _GUESSES:
        allowed = bound * guess.multiple(len(terms))
        if bool(np.all(np.abs(found - guess.make(totals, own)) <= allowed)):
            return guess.words
    fit = fit_ratio(found, np.sum(totals, axis=0))
    if fit is not None and fit.residual_share < find_half(dtype):
        return f"{fit.ratio:.6g} times the sum of what the replicas computed"
    return "none of sum, mean and own of what the replicas computed"


def describe_first(
    a: Trace, b: Trace, comparison: RunDifference
) -> list[tuple[str, str]]:
    """Where two runs first differ in a reduced gradient: what it is in each.

    Returns:
        `A` or `B`, and the words of `describe_reduction`.
    """
    first = comparison.first
    if first is None or first.key.phase != "reduced_gradient" or a.digested:
        return []
    path = first.key.variable
    named = (("A", a, path), ("B", b, comparison.renamed.get(path, path)))
    told = [
        (name, describe_reduction(trace, replace(first.key, variable=known)))
        for name, trace, known in named
    ]
    return [(name, words) for name, words in told if words]
