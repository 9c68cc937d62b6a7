"""Variables whose parts the replicas make, and average where they add up."""

from __future__ import annotations

from collections.abc import Iterator

from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis


def explain_by_averaged_parts(context: Context) -> Iterator[Hypothesis]:
    """The step leaves an N-th of what is due of all of a variable: 1/N v.

    As where each replica updates its part of the variables, the others have 0 there,
    and all of it is averaged. A single number may be an N-th for many reasons.
    """
    n = context.replicas
    is_one = all(case.expected.size <= 1 for case in context.cases)
    if context.phase != "variable" or n == 1 or is_one:
        return
    yield Hypothesis(
        code="mean-instead-of-sum",
        predicted={number: case.expected / n for number, case in context.list_cases()},
        detail=f"the step leaves 1/{n} of what is due: what the replicas make of the "
        "variable is averaged and not added up",
        ratio=1 / n,
        advice="Add up the replicas' parts of a variable (all_reduce), or gather them.",
    )
