"""Settings of optimizers that differ, and that one device could not take."""

from __future__ import annotations

from dataclasses import replace

from distbench.diagnose.causes.explain import Explained, explain_all
from distbench.diagnose.causes.rank import ALL
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.settings import (
    describe_settings,
    list_odd_owners,
    list_untried,
)
from distbench.diagnose.hypotheses.settings import SET


def explain_by_untried(context: Context) -> Explained | None:
    """What no cause explains whole, as of settings that ask for state of their own.

    They differ, and so does which slots a variable has; one device cannot try them. Of
    other settings, and of variables that an optimizer with such a slot does not have,
    nobody knows whether anything is made of them.

    Args:
        context: The wrong values of a phase that no cause explains whole.
    """
    words = describe_settings(context.evidence, list_untried(context.evidence))
    if context.phase not in SET or not words:
        return None
    owners, infos = list_odd_owners(context.evidence), context.infos
    cases = tuple(
        case
        for case in context.cases
        if {case.key.variable, infos[case.key.variable].of} & owners
    )
    if not cases:
        return None
    found = explain_all(context.select(cases), "hyperparameter-differs", words)
    return replace(found, foretells=False)


def is_told(cause: Explained) -> bool:
    """Whether a cause explains all, or copies go apart.

    Of each copy, its own way is all that there is to tell.
    """
    is_apart = cause.code == "replicas-diverged" and cause.confidence == 0
    return is_apart or cause.confidence >= ALL
