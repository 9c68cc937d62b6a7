"""Updates of optimizers that have other settings than on one device."""

from __future__ import annotations

from collections.abc import Iterator

from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.clues.settings import describe_settings, list_untried
from distbench.trace import UPDATED, Phase
from distbench.trace.settings import OtherSetting

SET: tuple[Phase, ...] = ("applied_gradient", *UPDATED)
"""What settings lead: a sum of gradients is there before."""


def explain_by_settings(context: Context) -> Iterator[Hypothesis]:
    """It is what one device comes to with the settings that the cluster has."""
    configured = context.evidence.fed.configured
    if context.phase not in SET or configured is None:
        return
    if predicted := context.read_state(configured):
        yield Hypothesis(
            code="hyperparameter-differs",
            predicted=predicted,
            detail=f"{describe_settings(context.evidence)}, and with that one device "
            "comes to the same",
        )


def explain_by_untried_settings(context: Context) -> Iterator[Hypothesis]:
    """Steps are as many times as long as a setting that one device did not try.

    It may have been asked for state of its own, or for nothing: what a corrected run
    leaves behind is fed to nobody.
    """
    if context.phase != "variable":
        return
    words = describe_settings(context.evidence, untried=True)
    for other in list_untried(context.evidence):
        ratio = _find_ratio(other)
        if ratio is None:
            continue
        predicted = {
            number: case.base + ratio * (case.expected - case.base)
            for number, case in context.list_cases()
            if case.key.replica in other.replicas
        }
        if predicted and context.match_all(predicted):
            yield Hypothesis(
                code="hyperparameter-differs",
                predicted=predicted,
                detail=f"{words}, and the steps are {ratio:.8g} times as long",
                ratio=ratio,
            )


def _find_ratio(other: OtherSetting) -> float | None:
    """By what a number was multiplied; None of what is no number, or by no length."""
    seen, due = other.seen, other.due
    if isinstance(seen, (bool, str)) or isinstance(due, (bool, str)):
        return None
    return seen / due if seen and due and seen / due > 0 else None
