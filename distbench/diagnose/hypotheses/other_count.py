"""Updates that a counter of steps leads, where it is taken for another number."""

from __future__ import annotations

from collections.abc import Iterator

from distbench.compare.arrays.copies import are_same
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import UPDATED, Trace


def explain_by_other_count(context: Context) -> Iterator[Hypothesis]:
    """The state is what one device leaves where its counter of steps is elsewhere.

    Whatever the rule makes of it: a schedule, a bias correction, or another rule from
    some step on. The counter itself is right. Numbers that would have changed what is
    right come last.
    """
    if context.phase not in UPDATED or not _is_right(context):
        return
    counted = context.evidence.fed.counted
    for trace in sorted(counted, key=lambda trace: _changes_right(context, trace)):
        predicted = context.read_state(trace)
        if predicted:
            yield Hypothesis(
                code="hyperparameter-differs",
                predicted=predicted,
                detail="it is what the rule makes on one device where it takes the "
                f"counter of steps, t, for {trace.notes['count']}, "
                f"with N = {context.replicas}",
            )


def _is_right(context: Context) -> bool:
    """Whether the counter goes on as it should; another one is a cause by itself."""
    once = context.evidence.fed.replays.get("reduced_gradient")
    if once is None:
        return False
    return all(
        (due := once.get(key)) is None or are_same(value, due)
        for key, value in context.evidence.observed.select(phase="iterations")
    )


def _changes_right(context: Context, trace: Trace) -> bool:
    """Whether one device would have made something else of any right value, too."""
    once = context.evidence.fed.replays.get("reduced_gradient")
    if once is None:
        return False
    for key in context.right:
        value, due = trace.get(key), once.get(key)
        if value is None or due is None:
            continue
        # One device computed both of them from the same numbers by the same ops.
        if not are_same(value, due):
            return True
    return False
