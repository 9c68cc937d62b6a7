"""Micro-steps of which some are summed over the replicas, and some are not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from distbench.compare.arrays.ratio import SAME
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import add_weighted
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.micro_steps import fit_parts, read_micro_steps
from distbench.diagnose.hypotheses.reduction import name_missing_sum
from distbench.trace import SUMMED, WHOLE
from distbench.trace.numbers import Array


def explain_by_own_micro_steps(context: Context) -> Iterator[Hypothesis]:
    """Each replica goes on with its own gradient of some micro-steps.

    Where micro-step j counts w_j on one device, a replica that keeps its own gradient
    g_rj in place of the sum Σ_r g_rj has an error of w_j (g_rj - Σ_r g_rj): the weights
    of all errors are those of the sums, or 0.
    """
    if context.phase not in SUMMED or context.replicas == 1:
        return
    predicted: dict[int, Array] = {}
    kept: set[int] = set()
    count = 0
    for cases in context.group_cases(lambda case: case.key.call).values():
        given = read_micro_steps(context, cases)
        if not given or any(case.key.replica == WHOLE for _, case in cases):
            return
        sums = {n: [np.sum(v, axis=0) for v in found] for n, found in given.items()}
        lacks = {
            number: [
                values[case.key.replica] - total
                for values, total in zip(given[number], sums[number], strict=True)
            ]
            for number, case in cases
        }
        due = fit_parts(context, cases, sums, [case.expected for _, case in cases])
        errors = [case.observed - case.expected for _, case in cases]
        seen = fit_parts(context, cases, lacks, errors)
        if due is None or seen is None:
            return
        own = np.abs(seen - due) <= SAME * np.abs(due)
        if not np.all(own | (np.abs(seen) <= SAME * np.max(np.abs(due)))):
            return
        kept |= {int(place) + 1 for place in np.flatnonzero(own & (due != 0))}
        count = len(due)
        predicted |= {
            number: case.expected + add_weighted(np.where(own, due, 0.0), lacks[number])
            for number, case in cases
        }
    if 0 < len(kept) < count:
        which = ", ".join(map(str, sorted(kept)))
        yield Hypothesis(
            code=name_missing_sum(context),
            predicted=predicted,
            detail=f"of the {count} gradients that a step adds up for a variable, each "
            f"replica goes on with its own of number {which}, and with the sum over "
            "the replicas of the others",
            advice="Sum what is added up of all micro-steps, once and at the end.",
        )
