"""Updates that make nothing of some slices of a sparse gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.by_hand import find_followers, find_sum
from distbench.trace import UPDATED, SparseRows

_TOLD: Mapping[str, tuple[str, str]] = {
    "last": ("sparse-duplicates", "of slices for the same row only the last counts"),
    "first": ("sparse-duplicates", "of slices for the same row only the first counts"),
    "mean": ("sparse-averaged", "every row is divided by the number of its slices"),
}


def explain_by_overwritten_rows(context: Context) -> Iterator[Hypothesis]:
    """The state is what one device makes of a gradient of which not all slices count.

    The gradient itself has them all: the rule drops some, or averages them.
    """
    if context.phase not in UPDATED:
        return
    for trace in context.evidence.fed.overwritten:
        code, words = _TOLD[str(trace.notes["kept"])]
        yield Hypothesis(
            code=code,
            predicted=context.read_state(trace),
            detail=f"the rule takes the slices of its gradient apart: {words}",
        )


def explain_by_rows_met_once(context: Context) -> Iterator[Hypothesis]:
    """The state is what one device makes of a gradient whose rows were added up.

    On one device a row counts as often as it is met, in how often it was seen, say.
    """
    whole = find_sum(context, range(context.replicas))
    if context.phase not in UPDATED or whole is None or not _meets_again(context):
        return
    yield Hypothesis(
        code="sparse-duplicates",
        predicted=find_followers(context, whole),
        detail="it is what one device makes of a gradient in which each row comes "
        "once, with what its slices add up to: there a row counts as often as it comes",
        advice="Count rows on both in one way: as often as they come, or each once "
        "(tf.unique).",
    )


def _meets_again(context: Context) -> bool:
    """Whether the own gradients of a wrong step have several slices for some row."""
    observed = context.evidence.observed
    return any(
        isinstance(value, SparseRows) and (value.count_rows() > 1).any()
        for step in {case.key.step for case in context.cases}
        for _, value in observed.select(step=step, phase="local_gradient")
    )
