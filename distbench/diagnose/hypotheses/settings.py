"""Updates of optimizers that have other settings than on one device."""

from __future__ import annotations

import math
from collections.abc import Iterator

from distbench.compare.arrays.ratio import are_same_factors
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.clues.settings import (
    describe_settings,
    find_times,
    list_untried,
)
from distbench.trace import UPDATED, Phase

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
    leaves behind is fed to nobody. What one device could not take may be made of the
    number of replicas and lead nothing; so a power of N proves nothing of it.
    """
    if context.phase != "variable":
        return
    evidence, n = context.evidence, context.replicas
    for other in list_untried(evidence):
        times = find_times(other)
        is_of_n = times is not None and _is_power(times, n)
        if times is None or (is_of_n and evidence.fed.configured is not None):
            continue
        predicted = {
            number: case.base + times * (case.expected - case.base)
            for number, case in context.list_cases()
            if case.key.replica in other.replicas
        }
        if predicted and context.match_all(predicted):
            words = f"the steps are {times:.8g} times as long"
            if is_of_n:
                words += (
                    f", as what is done once for each of N = {n} replicas makes them"
                )
            yield Hypothesis(
                code="hyperparameter-differs",
                predicted=predicted,
                detail=f"{describe_settings(evidence, [other])}, and {words}",
                ratio=times,
            )


def _is_power(times: float, n: int) -> bool:
    """Whether a factor is N, N², … or one over these."""
    power = round(math.log(times, n)) if n > 1 else 0
    return power != 0 and are_same_factors(times, float(n) ** power)
