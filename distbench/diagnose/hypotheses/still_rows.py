"""Rows of a table that no replica updates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.diagnose.clues.cases import find_base
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.names import name_numbers
from distbench.trace import UPDATED
from distbench.trace.numbers import Array


def explain_by_still_rows(context: Context) -> Iterator[Hypothesis]:
    """Some rows stay as they were while others take the step that is due.

    As where replicas share out the rows that they update, and some are nobody's.
    """
    if context.phase not in UPDATED:
        return
    predicted: dict[int, Array] = {}
    still: dict[int, set[int]] = {}
    for number, case in context.list_cases():
        rows = _find_still(context, case)
        if rows is None:
            continue
        beside = rows.reshape(-1, *(1 for _ in case.expected.shape[1:]))
        predicted[number] = np.where(beside, find_base(case), case.expected)
        names = np.flatnonzero(rows) if case.rows is None else case.rows[rows]
        still.setdefault(case.key.step, set()).update(names.astype(int).tolist())
    if predicted:
        first = sorted(still[min(still)])
        yield Hypothesis(
            code="sparse-rows",
            predicted=predicted,
            detail=f"nothing updates {name_numbers('row', first)} of it, which "
            "examples look up, and the others take the step that is due",
            advice="Look at how rows are shared out: each needs a replica that updates "
            "it, and what each updates of its own has to reach all.",
        )


def _find_still(context: Context, case: Pair) -> Array | None:
    """Which rows of a table stay: bool [rows]; None where none does, or none moves."""
    owner = context.infos[case.key.variable].owner
    if case.expected.ndim < 2 or not context.is_sparse(owner):
        return None
    axes = tuple(range(1, case.expected.ndim))
    base = find_base(case)
    is_due = np.any(case.expected != base, axis=axes)
    stays = ~np.any(case.observed != base, axis=axes) & is_due
    moves = is_due & ~stays
    return stays if np.any(stays) and np.any(moves) else None
