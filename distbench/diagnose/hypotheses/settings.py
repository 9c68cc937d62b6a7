"""Updates of optimizers that have other settings than on one device."""

from __future__ import annotations

from collections.abc import Iterator

from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.clues.settings import describe_settings
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
