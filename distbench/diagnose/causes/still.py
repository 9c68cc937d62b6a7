"""State that a step leaves bit for bit as it was, where one device changes it."""

from __future__ import annotations

from distbench.compare.arrays.pair import Pair
from distbench.compare.state.leading import is_trained
from distbench.diagnose.clues.cases import is_still
from distbench.diagnose.clues.context import Context
from distbench.trace import UPDATED


def part_still(context: Context) -> tuple[Context, ...]:
    """The wrong values that stay as they were, and those that move; empty if not both.

    No factor stands for both: what comes nearest to all of them is true of none. A step
    may leave what follows from no gradient as it is, as a count that begins anew.

    Args:
        context: The wrong values of a phase.
    """
    if context.phase not in UPDATED:
        return ()
    still = tuple(c for c in context.cases if is_still(c) and _is_led(context, c))
    known = {id(case) for case in still}
    moved = tuple(case for case in context.cases if id(case) not in known)
    return (context.select(still), context.select(moved)) if still and moved else ()


def _is_led(context: Context, case: Pair) -> bool:
    info = context.infos[case.key.variable]
    return bool(info.of) or is_trained(context.evidence, info.path)
