"""Rules that count the replicas in a sum that has all their parts."""

from __future__ import annotations

from collections.abc import Iterator

from distbench.compare.values import Array
from distbench.diagnose.context import Context, Hypothesis
from distbench.trace import UPDATED, Trace


def explain_by_counted_replicas(context: Context) -> Iterator[Hypothesis]:
    """The state is what one device leaves if a rule counts N replicas in the sum.

    Or if it takes an N-th of the sum, or N times as much, where a rule makes several
    things of it and one of them is wrong: a direction beside a momentum, say.
    """
    if context.phase not in UPDATED:
        return
    for trace in context.evidence.fed.recounted:
        predicted = context.read_state(trace)
        if predicted:
            yield _name(context, trace, predicted)


def _name(context: Context, trace: Trace, predicted: dict[int, Array]) -> Hypothesis:
    n = context.replicas
    factor = trace.notes.get("factor")
    if factor is None:
        return Hypothesis(
            code="hyperparameter-differs",
            predicted=predicted,
            detail="it is what the rule makes of the same sum on one device if it is "
            f"told that there are N = {n} replicas: something in it depends on "
            "num_replicas_in_sync",
            advice="The sum has the parts of all replicas, so that what a rule makes "
            "of it does not depend on their number.",
        )
    is_less = float(str(factor)) < 1
    share = "an N-th of the sum" if is_less else "N times the sum"
    return Hypothesis(
        code="mean-instead-of-sum" if is_less else "double-reduction",
        predicted=predicted,
        detail=f"it is what the rule makes of {share} on one device, with N = {n}",
        ratio=float(str(factor)),
        advice="The gradients are summed once, and the loss is divided by the global "
        "batch: the rule takes the sum as it is.",
    )
