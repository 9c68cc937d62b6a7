"""Replicas that take the right step, each times a number of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from distbench.compare.arrays.copies import are_same
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import fit_weights, list_step_errors, predict_cases
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import WHOLE, TraceKey
from distbench.trace.numbers import Array

_SAME = 1e-2
"""Two fitted numbers that are no farther apart are taken for one."""

Lengths = Mapping[tuple[int, int], float]
"""How many times the right step a copy takes, by step and replica."""


def explain_by_own_lengths(context: Context) -> Iterator[Hypothesis]:
    """The right step times a number that differs by replica and by step.

    As where each chooses its rate by its own examples: some copies take what one device
    takes. A number for each replica is a setting that differs, and one for each step,
    the same on all, a schedule.
    """
    if context.phase != "variable":
        return
    right = _list_right(context)
    if not right:
        return
    lengths = dict.fromkeys(right, 1.0)
    shown: dict[int, list[float]] = {}
    predicted: dict[int, Array] = {}
    groups = context.group_cases(lambda case: (case.key.step, case.key.replica))
    for place, cases in groups.items():
        rows = list_step_errors(cases)
        weights = fit_weights(rows)
        if weights is None:
            return
        lengths[place] = 1 + float(weights[0])
        shown.setdefault(place[1], []).append(lengths[place])
        predicted |= predict_cases(context.cases, rows, weights)
    if not (_differ(lengths, by=0) and _differ(lengths, by=1)):
        return
    replica, numbers = next(iter(shown.items()))
    words = ", ".join(f"{number:.6g}" for number in numbers)
    yield Hypothesis(
        code="replicas-diverged",
        predicted=predicted,
        detail="the right step is taken times a number that differs by replica and "
        f"step ({words} on replica {replica}), as one does who goes by its own loss, a "
        "norm of its own gradient or a count of its own examples, so the copies go "
        "apart",
    )


def _list_right(context: Context) -> set[tuple[int, int]]:
    """Steps and replicas in which a copy of what is wrong elsewhere moves rightly."""
    paths = {case.key.variable for case in context.cases}
    return {
        (key.step, key.replica)
        for key in context.right
        if key.variable in paths and _moves(context, key)
    }


def _moves(context: Context, key: TraceKey) -> bool:
    """Whether one device changes a variable in a step."""
    before = context.evidence.get_before(key.step, key.phase, key.variable)
    after = context.evidence.reference.get(key.at(WHOLE))
    return before is not None and after is not None and not are_same(before, after)


def _differ(lengths: Lengths, by: int) -> bool:
    """Whether there are several lengths in a step (0), or on a replica (1)."""
    groups: dict[int, list[float]] = {}
    for place, length in lengths.items():
        groups.setdefault(place[by], []).append(length)
    return any(
        np.ptp(found) > _SAME * np.max(np.abs(found)) for found in groups.values()
    )
