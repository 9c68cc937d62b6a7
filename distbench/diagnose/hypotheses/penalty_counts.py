"""How often a penalty counts in a sum, each of its parts by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.pull import Pull, apply_pull, fit_pull, tells_pull
from distbench.compare.arrays.ratio import SAME, fit_multiple
from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context
from distbench.trace import WHOLE
from distbench.trace.numbers import densify, measure_size

Counts = tuple[float | None, float | None]
"""How often the L2 part counts, a · θ, and the L1 part, b · sign(θ); None without."""


def find_counts(context: Context, case: Pair, pull: Pull) -> Counts | None:
    """How often a penalty counts in a sum, if shards tell how much all of it is.

    Each shard alone has the whole, so that together they have it N - 1 times too much.

    Args:
        context: The wrong values.
        case: One of them.
        pull: What it has too much of the penalty, or too little.
    """
    key = replace(case.key, phase="local_gradient", replica=WHOLE)
    reference = context.evidence.reference
    whole, shards = reference.get(key), reference.get_replicas(key)
    before = context.evidence.get_before(key.step, "variable", key.variable)
    if case.key.replica != WHOLE or whole is None or len(shards) < 2 or before is None:
        return None
    theta, times = densify(before), len(shards) - 1
    excess = np.sum([densify(shard) for shard in shards], axis=0) - densify(whole)
    due = fit_pull(theta, excess)
    if due is None or not any(due):
        return None
    parts = [apply_pull(part, theta) for part in ((due[0], 0.0), (0.0, due[1]))]
    size, left = measure_size(excess), measure_size(excess - sum(parts))
    if left > SAME * size:
        return None
    least = min(map(measure_size, parts))
    share = fit_multiple(apply_pull(pull, theta), apply_pull(due, theta))
    if share is None:
        rest = case.observed - case.expected - apply_pull(pull, take_rows(before, case))
        # Each part has to be known as well as all of it is.
        known = max(left, times * measure_size(rest)) <= SAME * least
        if not known or least <= SAME * size or not tells_pull(theta):
            return None
        return 1 + times * pull[0] / due[0], 1 + times * pull[1] / due[1]
    count = 1 + times * share
    first, second = (measure_size(part) > SAME * size for part in parts)
    return count if first else None, count if second else None


def join_counts(found: Sequence[Counts | None]) -> Counts | None:
    """What several values agree on; None where one does not tell, or they differ."""
    known = [counts for counts in found if counts is not None]
    if not known or len(known) < len(found):
        return None
    joined: list[float | None] = []
    for column in zip(*known, strict=True):
        part = [count for count in column if count is not None]
        if np.ptp(part or [0.0]) > SAME:
            return None
        joined.append(part[0] if part else None)
    return joined[0], joined[1]


def leaves_out(counts: Counts) -> bool:
    """Whether some part of a penalty is not there at all."""
    return any(abs(count) <= SAME for count in counts if count is not None)


def tell_counts(counts: Counts) -> str:
    """What becomes of a penalty on a variable; "" where that is next to nothing."""
    known = [count for count in counts if count is not None]
    if np.ptp(known) > SAME:
        first, second = map(_tell_count, known)
        return f"of a penalty on the variable the L2 part {first}, the L1 part {second}"
    if abs(known[0] - 1) <= SAME:
        return ""
    return f"a penalty on the variable {_tell_count(known[0])}"


def _tell_count(count: float) -> str:
    if abs(count) <= SAME:
        return "is left out"
    if abs(count - 1) <= SAME:
        return "is right"
    return f"counts {count:.4g} times in place of once"
