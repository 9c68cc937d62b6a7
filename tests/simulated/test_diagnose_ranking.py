"""Of several causes the one is named that explains most, and of equals the first."""

from __future__ import annotations

import numpy as np
import pytest
from training_simulator import KERNEL, observe

from distbench.compare.arrays.measure import Margin
from distbench.compare.arrays.pair import GLOBAL, Pair
from distbench.diagnose.causes.rank import find_best
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import TraceKey

KEY = TraceKey(step=0, phase="variable", variable=KERNEL, replica=0)
COARSE = {"bound": 0.9, "dtype": "bfloat16"}
"""Rounding may move a value by as much as it is off."""


def make_context(errors, bound=0.0, dtype="float32"):
    """What replicas have in the place of 0, one array for each."""
    wrong = [
        Pair(
            key=KEY.at(replica),
            relation="reference",
            against=GLOBAL,
            observed=error,
            expected=np.zeros_like(error),
            margin=Margin(bound=bound),
            dtype=dtype,
        )
        for replica, error in enumerate(errors)
    ]
    return Context(evidence=observe(), phase="variable", cases=tuple(wrong))


@pytest.mark.parametrize(
    ("left", "best"),
    [
        ((0.3, 0.2, 0.1), 2),
        ((0.1, 0.2, 0.1), 0),
        ((0.104, 0.1), 0),
        ((0.2, 0.0, 0.0), 1),
        ((2.0, 1.5), 0),
    ],
    ids=["more", "equal", "nearly-equal", "all", "nothing"],
)
def test_the_first_of_those_that_explain_most_is_the_best(left, best):
    """Each leaves a share of the error, which is 1 for every element."""
    context = make_context([np.ones(4)])
    causes = [
        Hypothesis(code=str(number), predicted={0: np.full(4, 1 - share)}, detail="")
        for number, share in enumerate(left)
    ]
    found = find_best(context, causes)
    assert found is not None
    assert found.hypothesis is causes[best]
    assert found.confidence == pytest.approx(max(0, 1 - left[best]))
    assert found.full == (left[best] == 0)


@pytest.mark.parametrize(
    ("errors", "accepted"),
    [
        ([np.ones(4)], True),
        ([np.ones(3)], False),
        # Both replicas have the same two.
        ([np.array([1.0, 2.0])] * 2, False),
        ([np.array([1.0, 2.0]), np.array([2.0, 3.0])], True),
    ],
    ids=["four", "three", "two-twice", "two-and-two"],
)
@pytest.mark.parametrize("share", [0.05, 0.0], ids=["most", "all"])
def test_of_few_numbers_a_cause_explains_all_or_nothing(errors, accepted, share):
    """Nearly any direction is near that of two numbers."""
    context = make_context(errors)
    predicted = {n: error * (1 - share) for n, error in enumerate(errors)}
    cause = Hypothesis(code="x", predicted=predicted, detail="")
    found = find_best(context, [cause])
    assert found is not None
    assert found.accepted == (accepted or share == 0)


@pytest.mark.parametrize("rounded", [0, 1], ids=["first", "last"])
def test_what_is_rounded_does_not_count_for_a_cause_wherever_it_stands(rounded):
    """Enough of its numbers are wrong to make up all that is counted."""
    errors = [np.linspace(1.0, 2.0, 8)] * 2
    errors[rounded] = np.linspace(1e-8, 2e-8, 12)
    predicted = {1 - rounded: errors[1 - rounded]}
    cause = Hypothesis(code="x", predicted=predicted, detail="", rounded={rounded})
    found = find_best(make_context(errors), [cause])
    assert found is not None
    assert found.accepted


@pytest.mark.parametrize(
    ("errors", "fitted", "full"),
    [
        ([1.0], 0, True),
        ([1.0], 1, False),
        ([1.0, 1.0], 1, False),  # the same number twice
        ([1.0, 1.1], 1, True),
        ([1.0, 1.1], 2, False),
    ],
    ids=["one", "one-fitted", "one-twice", "two", "two-fitted"],
)
def test_a_fit_of_as_many_numbers_as_are_wrong_explains_nothing(errors, fitted, full):
    context = make_context([np.array([e]) for e in errors])
    predicted = {n: np.array([e]) for n, e in enumerate(errors)}
    cause = Hypothesis(code="x", predicted=predicted, detail="", fitted=fitted)
    found = find_best(context, [cause])
    assert (found is not None and found.full) == full


@pytest.mark.parametrize(("fitted", "accepted"), [(0, True), (1, True), (3, False)])
def test_fitted_numbers_do_not_speak_for_what_leaves_something(fitted, accepted):
    context = make_context([np.ones(6)])
    predicted = {0: np.full(6, 0.92)}
    cause = Hypothesis(code="x", predicted=predicted, detail="", fitted=fitted)
    found = find_best(context, [cause])
    assert found is not None
    assert found.accepted == accepted


@pytest.mark.parametrize(
    ("errors", "left", "full"),
    [
        ([1.0], 0.08, False),
        ([1.0], 0.0005, True),
        ([1.0, 1.0], 0.08, False),  # the same number twice
        ([1.0, 1.1], 0.08, False),
        ([1.0, 1.1, 1.2], 0.08, True),
        ([1.0, 1.1, 1.2, 1.3, 1.4, 1.5], 0.2, False),
    ],
    ids=["one", "one-exactly", "one-twice", "two", "three", "too-much"],
)
def test_what_coarse_rounding_allows_may_be_chance(errors, left, full):
    """Rounding may move each by more than it is off, as that of a loss in bfloat16."""
    context = make_context([np.array([e]) for e in errors], **COARSE)
    predicted = {n: np.array([e * (1 - left)]) for n, e in enumerate(errors)}
    found = find_best(context, [Hypothesis(code="x", predicted=predicted, detail="")])
    assert found is not None
    assert found.full == full


@pytest.mark.parametrize(
    ("left", "best"), [((0.08, 0.01), 1), ((0.08, 0.05), 0), ((0.3, 0.01), 1)]
)
def test_of_causes_within_coarse_rounding_one_that_leaves_far_less_wins(left, best):
    """The first one is not fitted, so it leaves a bit more where it is the true one."""
    error = np.linspace(1.0, 2.0, 8)
    context = make_context([error], **COARSE)
    causes = [
        Hypothesis(code="x", predicted={0: error * (1 - share)}, detail="")
        for share in left
    ]
    found = find_best(context, causes)
    assert found is not None
    assert found.full
    assert found.hypothesis is causes[best]


@pytest.mark.parametrize(
    ("choices", "left", "accepted"),
    [(1, 0.08, True), (16, 0.08, False), (16, 0.01, True)],
)
def test_what_is_the_nearest_of_many_may_be_so_by_chance(choices, left, accepted):
    """Of 4 replicas each element may be the sum of any, of which one is always near."""
    error = np.linspace(1.0, 2.0, 8)
    context = make_context([error], **COARSE)
    predicted = {0: error * (1 - left)}
    cause = Hypothesis(code="x", predicted=predicted, detail="", choices=choices)
    found = find_best(context, [cause])
    assert found is not None
    assert found.accepted == found.full == accepted


def test_what_is_rounded_speaks_neither_for_a_cause_nor_against_it():
    context = make_context([np.linspace(1.0, 2.0, 8), np.array([1e-8])])
    predicted = {0: context.cases[0].observed}
    told, silent = (
        Hypothesis(code="x", predicted=predicted, detail="", rounded=rounded)
        for rounded in ({1}, ())
    )
    assert find_best(context, [silent, told]).hypothesis is told
    assert not find_best(context, [silent]).full
    alone = Hypothesis(code="x", predicted={}, detail="", rounded={0, 1})
    assert not find_best(context, [alone]).accepted
