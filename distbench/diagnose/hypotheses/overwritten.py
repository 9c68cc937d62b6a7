"""Updates that make nothing of some slices of a sparse gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from distbench.compare.values import Array
from distbench.diagnose.context import Context, Hypothesis, take_rows
from distbench.trace import UPDATED, Trace

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
            predicted=_read_state(context, trace),
            detail=f"the rule takes the slices of its gradient apart: {words}",
        )


def _read_state(context: Context, trace: Trace) -> dict[int, Array]:
    """The state that follows; from a sum that nobody saw it is the same for all."""
    found = ((n, c, trace.get(c.key)) for n, c in context.list_cases())
    return {
        number: take_rows(value, case)
        for number, case, own in found
        if (value := trace.get(case.key.at(0)) if own is None else own) is not None
    }
