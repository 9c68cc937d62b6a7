"""Settings of optimizers that differ, and that one device could not take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distbench.diagnose.causes.explain import Explained, explain_all
from distbench.diagnose.causes.rank import ALL
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.settings import describe_settings, have_other_slots
from distbench.diagnose.hypotheses.settings import SET


def explain_by_untried(
    context: Context, causes: Sequence[Explained]
) -> tuple[Explained, ...]:
    """What no cause explains whole, as of settings that ask for state of their own.

    They differ, and so does which slots there are; one device cannot try them. Of other
    settings nobody knows whether anything is made of them.

    Args:
        context: The wrong values of a phase.
        causes: Those that are known of them.

    Returns:
        What is told by its cause, and the rest; empty where no settings are such.
    """
    words = describe_settings(context.evidence, untried=True)
    if context.phase not in SET or not words or not have_other_slots(context.evidence):
        return ()
    told = tuple(filter(is_told, causes))
    left = tuple(case for cause in causes if cause not in told for case in cause.cases)
    found = explain_all(context, "hyperparameter-differs", words)
    return (*told, replace(found, cases=left, foretells=False))


def is_told(cause: Explained) -> bool:
    """Whether a cause explains all, or copies go apart.

    Of each copy, its own way is all that there is to tell.
    """
    is_apart = cause.code == "replicas-diverged" and cause.confidence == 0
    return is_apart or cause.confidence >= ALL
