"""The register of causes: one line for each, most specific first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from distbench.diagnose import generic, loss, reduction
from distbench.diagnose.context import Context, Hypothesis

Explain = Callable[[Context], Iterable[Hypothesis]]

CAUSES: tuple[Explain, ...] = (
    generic.explain_by_nonfinite,
    loss.explain_by_equal_gradients,
    loss.explain_by_scale,
    loss.explain_by_penalty,
    reduction.explain_by_missing_sum,
    reduction.explain_by_count,
    reduction.explain_by_subset,
    reduction.explain_by_pairing,
    generic.explain_by_staleness,
    generic.explain_by_factor,
    reduction.explain_by_weights,
)


def list_hypotheses(context: Context) -> Iterator[Hypothesis]:
    """Ask every cause what the wrong values would be under it."""
    for order, explain in enumerate(CAUSES):
        for hypothesis in explain(context):
            yield replace(hypothesis, order=order)
