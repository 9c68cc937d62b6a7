"""Updates that a number of Python's leads, which moves while they are traced."""

from __future__ import annotations

from collections.abc import Iterator

from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import UPDATED

_ADVICE = (
    "Keep it in a tf.Variable that changes once a step, or compute it from iterations; "
    "what differs from variable to variable, keep by variable."
)


def explain_by_traces(context: Context) -> Iterator[Hypothesis]:
    """The state is what one device leaves where it is traced as the replicas were.

    An update moves a number of Python's each time that it is traced, and goes by it:
    the graph keeps what it was. On replicas that one process traces it is moved N times
    as often, and stands elsewhere for each of them.
    """
    if context.phase not in UPDATED:
        return
    for trace in context.evidence.fed.traced:
        predicted = context.read_state(trace)
        if predicted:
            yield Hypothesis(
                code="hyperparameter-differs",
                predicted=predicted,
                detail="it is what the rule makes on one device where "
                f"'{trace.notes['number']}' stands as replicas leave it: a number of "
                "Python's that moves each time that an update is traced, for every "
                "replica's variable, and not when it runs",
                advice=_ADVICE,
            )
