"""Gradients that each replica makes something else of before they are summed."""

from __future__ import annotations

from collections.abc import Iterator

from distbench.compare.intermediates import losses_add_up
from distbench.diagnose.context import Context, Hypothesis
from distbench.diagnose.own_shard import describe_alone

COMBINED = "nonlinear-before-reduction"


def explain_by_own_combination(context: Context) -> Iterator[Hypothesis]:
    """Losses that add up, of which each replica makes gradients that do not.

    As where those of several losses are projected on each other, clipped one by one or
    divided by their norms. A loss of the own examples alone would do the same; so it is
    told where somebody has looked inside of all losses that are differentiated.
    """
    inside = context.evidence.inside
    if inside is None or context.phase != "local_gradient":
        return
    step = min(case.key.step for case in context.cases)
    if not losses_add_up(inside, step) or not describe_alone(context):
        return
    yield Hypothesis(
        code=COMBINED,
        predicted={number: case.observed for number, case in context.list_cases()},
        detail=(
            "all losses that are differentiated add up to those of one device, and "
            "every replica has the gradients that its shard alone gives on one device, "
            "which do not add up: what is done to them before the sum is not linear, "
            "such as a projection of one loss's on another's, a clip or a norm of each"
        ),
        phase="reduced_gradient",
    )
