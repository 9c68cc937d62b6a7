"""The cause that was found best, as what is told of the wrong values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from distbench.diagnose.causes.explain import Explained, explain_all
from distbench.diagnose.causes.rank import Ranked
from distbench.diagnose.clues.context import Context


def adopt(context: Context, best: Ranked) -> Explained:
    """A cause with all that it says of the wrong values of a part."""
    cause = best.hypothesis
    return replace(
        explain_all(context, cause.code, cause.detail, best.confidence),
        phase=cause.phase or context.phase,
        replicas=cause.replicas,
        ratio=cause.ratio,
        advice=cause.advice,
        foretells=cause.foretells,
    )


def list_beside(context: Context, best: Ranked) -> Iterator[Explained]:
    """The second mistake that a cause has in what it foretells, if there is one."""
    cause = best.hypothesis.beside
    if cause is not None:
        part = context.select(tuple(context.cases[n] for n in sorted(cause.predicted)))
        yield adopt(part, replace(best, hypothesis=cause))
