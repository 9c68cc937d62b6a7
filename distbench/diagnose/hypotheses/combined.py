"""Gradients that each replica makes something else of before they are summed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from distbench.compare.arrays.least_squares import fit_all
from distbench.compare.arrays.ratio import SAME
from distbench.compare.inside.given import gradients_add_up
from distbench.compare.inside.intermediates import has_common_loss, losses_add_up
from distbench.compare.nature.doubled import adds_up_beside_common, take_gradients
from distbench.compare.nature.given import exchanges, give_exchanged
from distbench.diagnose.clues.context import Context, find_shards
from distbench.diagnose.clues.hypothesis import NONLINEAR, Hypothesis
from distbench.diagnose.clues.own_shard import describe_alone
from distbench.diagnose.hypotheses.loss import are_own_means
from distbench.trace import WHOLE
from distbench.trace.numbers import Array


def explain_by_own_combination(context: Context) -> Iterator[Hypothesis]:
    """Losses that add up, of which each replica makes gradients that do not.

    As where those of several losses are projected on each other, clipped one by one or
    divided by their norms. A loss of the own examples alone would do the same; so it is
    told where somebody has looked inside of all losses that are differentiated. One
    that all replicas have alike, such as a penalty, is added up N times, which is
    linear.
    """
    inside = context.evidence.inside
    if inside is None or context.phase != "local_gradient":
        return
    step = min(case.key.step for case in context.cases)
    if not losses_add_up(inside, step):
        return
    are_given = gradients_add_up(inside, step)
    own = next(filter(describe_alone, _list_alone(context, are_given)), None)
    if own is None or _is_linear(own):
        return  # each shard's weighs otherwise than it should, and that is all
    add_up = "all losses that are differentiated add up to those of one device"
    if are_given:
        add_up = "all gradients that are taken of a variable add up to one device's"
    if has_common_loss(inside, step):
        if _is_linear_beside_common(own, step):
            return
        add_up += ", or are alike on all replicas"
    yield Hypothesis(
        code=NONLINEAR,
        predicted=_leave_out_means(context),
        detail=(
            f"{add_up}, and every replica hands over what its shard alone gives on one "
            "device, which does not add up: what is done to them before the sum is not "
            "linear, such as a projection of one loss's on another's, a clip or a norm "
            "of each"
        ),
        phase="reduced_gradient",
    )


def _leave_out_means(context: Context) -> dict[int, Array]:
    """What is wrong with variables of which replicas hand over no mere means.

    A mean of the own examples is linear: it has to be averaged, or divided by N.
    """
    kept = [
        part
        for part in context.part_by_variable()
        if not are_own_means(context, part.cases)
    ]
    names = {case.key.variable for part in kept for case in part.cases}
    return {
        number: case.observed
        for number, case in context.list_cases()
        if case.key.variable in names
    }


def _list_alone(context: Context, are_given: bool) -> Iterator[Context]:
    """The context by shards alone, and by such as know what all replicas count.

    To a shard that is given what others make of the variables that is a constant, and
    one device differentiates it. Who has the gradients of such a shard lacks a part of
    them, and nothing is done to those: unless all that tapes gave adds up.

    Args:
        context: The wrong values.
        are_given: Whether it does; see `gradients_add_up`.
    """
    yield context
    if exchanges(context.evidence, "features") and not are_given:
        return
    make = partial(give_exchanged, context.evidence)
    given = context.work_out("what is exchanged, given", make)
    if given is not None:
        yield context.judge_by(given)


def _is_linear_beside_common(context: Context, step: int) -> bool:
    """Whether the whole may have once what each shard has of the common losses."""
    evidence = context.evidence
    whole, *shards = (
        take_gradients(evidence.reference, replica, step)
        for replica in (WHOLE, *range(context.replicas))
    )
    return adds_up_beside_common(evidence, whole, shards, step) is not False


def _is_linear(context: Context) -> bool:
    """Whether the shards' gradients, each times one number, add up to the whole's."""
    columns = [find_shards(context, case) for case in context.cases]
    matrix = np.concatenate(
        [np.stack([np.ravel(term) for term in terms], axis=1) for terms in columns]
    )
    due = np.concatenate([np.ravel(case.expected) for case in context.cases])
    return fit_all(matrix, due, SAME) is not None
