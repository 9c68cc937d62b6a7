"""A decay by the same number whatever a variable's size: of its sign, as of L1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.diagnose.clues.cases import find_base
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.decay import fit_due_decay, name_decay
from distbench.diagnose.hypotheses.update import fit_feature
from distbench.trace.numbers import Array

_FEWEST = 4
"""Elements of which both signs are known, without which any error is that of signs."""


def explain_by_signed_decay(context: Context) -> Iterator[Hypothesis]:
    """What is too much or too little is a multiple of the sign of the variable.

    Either of what it was before the step, or, as by a soft threshold, of where the step
    leads: then elements that the threshold reaches become 0. It has to leave nothing:
    steps that are made of signs are off by as much in each element as well.
    """
    if context.phase != "variable":
        return
    fitted = fit_feature(context, _sign_start)
    if fitted is not None:
        yield from _name(context, _sign_start, *fitted)
    more = _fit_threshold(context)
    if more is not None:
        moved = {number: _move(case, more) for number, case in context.list_cases()}
        yield from _name(context, _sign_end, -more, moved)


def _sign_start(case: Pair) -> Array:
    return np.asarray(np.sign(find_base(case)))


def _sign_end(case: Pair) -> Array:
    return np.asarray(np.sign(case.expected))


def _fit_threshold(context: Context) -> float | None:
    """By how much a threshold is too large, from the elements that none reaches."""
    found = [
        (np.abs(case.expected) - np.abs(case.observed))[
            case.expected * case.observed > 0
        ]
        for _, case in context.list_cases()
    ]
    apart = (
        np.concatenate([np.ravel(part) for part in found]) if found else np.array([])
    )
    return float(np.median(apart)) if apart.size else None


def _move(case: Pair, more: float) -> Array:
    """What a threshold makes of a variable that is larger by a number.

    What a smaller one leaves of an element that is due to be 0 is not known, but that
    it is no more than the thresholds differ by.
    """
    due = case.expected
    if more < 0:
        left = np.clip(case.observed, more, -more)
        return np.asarray(np.where(due == 0, left, due - more * np.sign(due)))
    return np.asarray(np.sign(due) * np.maximum(np.abs(due) - more, 0))


def _name(
    context: Context,
    find: Callable[[Pair], Array],
    weight: float,
    predicted: Mapping[int, Array],
) -> Iterator[Hypothesis]:
    """What it is called, if it leaves nothing and elements of both signs are there."""
    signs = {
        (case.key.variable, case.key.step): find(case)
        for _, case in context.list_cases()
    }
    numbers = np.concatenate([sign.ravel() for sign in signs.values()])
    has_both = np.any(numbers > 0) and np.any(numbers < 0)
    if not has_both or np.count_nonzero(numbers) < _FEWEST:
        return
    if context.match_all(predicted):
        due = fit_due_decay(context, find)
        yield name_decay(
            weight,
            due,
            predicted,
            of="the variable's sign",
            what="the decay along the variable's sign, as of an L1 penalty,",
            in_turn=False,
        )
