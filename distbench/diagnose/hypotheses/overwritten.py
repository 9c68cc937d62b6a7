"""Updates that make nothing of some slices of a sparse gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from distbench.diagnose.context import Context, Hypothesis
from distbench.trace import UPDATED

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
