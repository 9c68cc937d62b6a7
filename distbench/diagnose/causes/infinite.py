"""Wrong values that are infinite, apart from those that are numbers."""

from __future__ import annotations

from distbench.diagnose.causes.rank import Ranked
from distbench.diagnose.clues.context import Context
from distbench.trace import UPDATED
from distbench.trace.numbers import is_finite


def part_infinite(context: Context) -> tuple[Context, ...]:
    """The wrong values that are finite, and those that are not; none if all are alike.

    An infinite error hides what is wrong with numbers, which may be less: a dtype that
    rounds them all has no room for some.
    """
    finite = tuple(case for _, case in context.list_cases())
    others = tuple(case for case in context.cases if not any(case is c for c in finite))
    if not finite or not others:
        return ()
    return context.select(finite), context.select(others)


def part_uneven(context: Context, best: Ranked | None) -> tuple[Context, ...]:
    """State that is infinite where another replica's copy is finite, and the rest.

    What makes all larger, or rounds all, does so on every replica: only what has to do
    with an overflow explains both.
    """
    parts = part_infinite(context)
    if not parts or context.phase not in UPDATED:
        return ()
    if best is not None and best.full and best.hypothesis.code == "nonfinite":
        return ()
    trace = context.evidence.observed
    copies = (
        trace.get(case.key.at(replica))
        for case in parts[1].cases
        for replica in range(context.replicas)
    )
    finite = (is_finite(v) for v in copies if v is not None)
    return parts[::-1] if any(finite) else ()
