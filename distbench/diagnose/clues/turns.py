"""State that stays as it was in a step, and what is said of its turn."""

from __future__ import annotations

from distbench.compare.arrays.pair import Pair
from distbench.diagnose.clues.context import Context
from distbench.diagnose.names import tell_more
from distbench.trace.numbers import are_equal, densify

_ADVICE = (
    "Look for a condition, a filter by name or a factor of 0 that keeps it there, or a "
    "period that is longer than on one device."
)


def name_turn(context: Context) -> tuple[str, str]:
    """Words to add of state that takes turns, and advice of what never moves.

    That a turn comes in other steps is known where some step moves it.

    Args:
        context: Wrong values that stay as they were.
    """
    moving: dict[str, bool] = {}
    for case in context.cases:
        path = case.key.variable
        moving[path] = moving.get(path, False) or _moves(context, case)
    still = [path for path, moves in moving.items() if not moves]
    if not still:
        return ": its turn comes in other steps", ""
    if len(still) == len(moving):
        return ", and no step of the run moves it here", _ADVICE
    named = f"'{still[0]}'{tell_more(still)}"
    return (
        f": no step of the run moves {named} here, and the turn of the others comes in "
        "other steps",
        _ADVICE,
    )


def _moves(context: Context, case: Pair) -> bool:
    """Whether any step of the cluster leaves another value than it found."""
    key, evidence = case.key, context.evidence
    steps = evidence.observed.select(
        phase=key.phase, variable=key.variable, replica=key.replica
    )
    for after, value in steps:
        before = evidence.get_held(after)
        if before is not None and not are_equal(densify(value), densify(before)):
            return True
    return False
