"""Whether one device too hands gradients on in other places than they came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from distbench.codes import CODES
from distbench.compare.inside.pieces import (
    cut_piece,
    find_place,
    find_start,
    measure_move,
)
from distbench.diagnose.names import tell_more
from distbench.evidence import Evidence
from distbench.trace import WHOLE, Trace, TraceKey
from distbench.trace.numbers import Array, densify, measure_size
from distbench.verdict import Finding

_ROUNDING = 2.0**-8
"""That of the narrowest dtype in which gradients travel, bfloat16."""
_ENOUGH = 6
"""Different numbers that do not stand at one distance by chance."""
_MOST = 0.75
"""Share of a value that stands elsewhere; its ends may come from beyond a bucket."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Moved:
    """A gradient that holds the numbers of other places.

    Attributes:
        key: Where it was seen.
        places: By how many places of a buffer of all gradients.
        numbers: The different numbers that stand there.
        error: Largest error of an element.
        share: Share of its elements that stand there.
    """

    key: TraceKey
    places: int
    numbers: Array
    error: float
    share: float


def find_misplaced(evidence: Evidence) -> Finding | None:
    """Tell pieces of a buffer that are cut at wrong places with one replica as well.

    No rule moves gradients from element to element, so these are the same numbers for
    other elements, whoever is taken as the measure. Of a variable of which this holds
    in some steps alone it is chance.
    """
    trace = evidence.reference
    paths = [v.path for v in evidence.observed.variables if v.role == "variable"]
    moved = [found for path in paths for found in _find_moved(trace, paths, path)]
    if not moved:
        return None
    first = min(moved, key=lambda one: one.key.step)
    names = tuple(dict.fromkeys(one.key.variable for one in moved))
    more = tell_more(names)
    error = max(one.error for one in moved)
    return Finding(
        code="wrong-pairing",
        phase="reduced_gradient",
        step=first.key.step,
        variable=first.key.variable,
        variables=names,
        replicas=tuple(range(evidence.observed.replicas)),
        ratio=None,
        error=error,
        bound=0.0,
        explanation=(
            f"Step {first.key.step}, reduced_gradient of '{first.key.variable}'{more}: "
            f"on one device as well it holds the numbers of other elements, "
            f"{first.places:+d} places on in a buffer of all gradients (wrong-pairing; "
            f"error {error:.3g}, against the gradient that was handed over). "
            f"{CODES['wrong-pairing'].fix}"
        ),
        confidence=first.share,
    )


def _find_moved(trace: Trace, paths: list[str], path: str) -> list[_Moved]:
    """What of a variable's gradients is moved, if all of them are, and alike."""
    found: list[_Moved] = []
    for key, _ in trace.select(phase="local_gradient", variable=path, replica=WHOLE):
        moved = _compare(trace, paths, key)
        if moved is None:
            return []
        found += moved
    numbers = [one.numbers for one in found]
    different = len(np.unique(np.concatenate(numbers))) if numbers else 0
    alike = len({one.places for one in found}) == 1
    return found if alike and different >= _ENOUGH else []


def _compare(trace: Trace, paths: list[str], key: TraceKey) -> list[_Moved] | None:
    """What of one gradient is moved: None if it is not, nothing if none can tell."""
    local = trace.get(key)
    handed = trace.get(replace(key, phase="reduced_gradient"))
    if local is None or handed is None:
        return []
    own, wanted = densify(local).ravel(), densify(handed).ravel()
    if not np.any(own) or own.shape != wanted.shape:
        return []
    allowed = _ROUNDING * np.abs(wanted)
    is_off = np.abs(wanted - own) > allowed
    # What a clip has scaled stands where it stood, and to look for a number of each
    # variable in the buffer of a large model takes long.
    scaled = (own @ wanted) / (own @ own) * own
    if not np.any(is_off) or np.all(np.abs(wanted - scaled) <= allowed):
        return None
    pieces = dict(_list_flat(trace, paths, key))
    buffer = np.concatenate(list(pieces.values()))
    start = find_start(buffer, wanted, allowed)
    if start is None:
        return None
    alike = np.abs(cut_piece(buffer, start, wanted.size) - wanted) <= allowed
    share = float(np.mean(alike))
    if share < _MOST:
        return None
    place = find_place(pieces, list(pieces), key.variable)
    return [
        _Moved(
            key=key,
            places=measure_move(buffer, start, place),
            numbers=np.unique(wanted[alike & is_off & (wanted != 0)]),
            error=measure_size(wanted - own),
            share=share,
        )
    ]


def _list_flat(
    trace: Trace, paths: list[str], key: TraceKey
) -> Iterator[tuple[str, Array]]:
    for path in paths:
        value = trace.get(replace(key, variable=path))
        if value is not None:
            yield path, densify(value).ravel()
