"""Rules that count the replicas in a sum that has all their parts."""

from __future__ import annotations

from collections.abc import Iterator

from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import UPDATED, Trace
from distbench.trace.numbers import Array


def explain_by_share_of_sum(context: Context) -> Iterator[Hypothesis]:
    """The state is what one device makes of an N-th of the sum, or of N times as much.

    Where a rule makes several things of the sum, one of them may be so: a direction
    beside a momentum, say.
    """
    for trace, predicted in _list_tried(context):
        if (noted := trace.notes.get("factor")) is None:
            continue
        factor = float(str(noted))
        share = "an N-th of the sum" if factor < 1 else "N times the sum"
        yield Hypothesis(
            code="mean-instead-of-sum" if factor < 1 else "double-reduction",
            predicted=predicted,
            detail=f"it is what the rule makes of {share} on one device, with "
            f"N = {context.replicas}",
            ratio=factor,
            advice="The gradients are summed once, and the loss is divided by the "
            "global batch: the rule takes the sum as it is.",
        )


def explain_by_told_count(context: Context) -> Iterator[Hypothesis]:
    """The state is what one device leaves if it is told of N replicas.

    So is whatever a program does on clusters alone: any other cause tells more.
    """
    for trace, predicted in _list_tried(context):
        if "told" not in trace.notes:
            continue
        yield Hypothesis(
            code="hyperparameter-differs",
            predicted=predicted,
            detail="it is what the rule makes of the same sum on one device if it is "
            f"told that there are N = {context.replicas} replicas: something in it "
            "depends on num_replicas_in_sync",
            advice="The sum has the parts of all replicas, so that what a rule makes "
            "of it does not depend on their number.",
        )


def _list_tried(context: Context) -> Iterator[tuple[Trace, dict[int, Array]]]:
    """What was tried, with the values that it leads to, if any."""
    if context.phase not in UPDATED:
        return
    for trace in context.evidence.fed.recounted:
        if predicted := context.read_state(trace):
            yield trace, predicted
