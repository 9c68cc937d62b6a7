"""Which breaks of the chain of a step are faults, and which ones are undone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from distbench.compare.arrays.measure import Margin
from distbench.compare.arrays.pair import GLOBAL, Pair
from distbench.compare.comparison import Comparison, Judged
from distbench.diagnose.stages.links import judge_chain
from distbench.trace import INITIAL


def compare(relation, phase, *, error, bound, step=0, call=0, variable="kernel"):
    """A value of 1, or a state that moves by 1, that is too large by an error."""
    return Judged(
        comparison=Comparison(
            step=step,
            call=call,
            phase=phase,
            variable=variable,
            replica=0,
            relation=relation,
            against="",
            error=error,
            bound=bound,
            error_over_bound=error / bound,
            ratio=1 + error,
            wrong=error > bound,
            effective=True,
            hidden=False,
            change=1.0,
            resolution=bound,
        )
    )


@pytest.mark.parametrize(
    ("later", "undone"),
    [(0.0, True), (1e-6, True), (9e-6, False)],
    ids=["all-right", "noise", "the-error-less-the-noise"],
)
def test_what_a_later_value_still_has_was_not_undone(later, undone):
    """Of an error of 1.5 bounds that is passed on, noise may leave less than one."""
    chain = judge_chain(
        [
            compare("follows", "reduced_gradient", error=1.5e-5, bound=1e-7),
            compare("reference", "applied_gradient", error=later, bound=1e-5),
        ],
        {},
        free=False,
    )
    assert (len(chain.forgiven), len(chain.broken)) == ((1, 0) if undone else (0, 1))


@pytest.mark.parametrize(
    ("later", "free", "kind"),
    [
        (1e-6, True, "undecided"),
        (2e-2, True, "broken"),
        (1e-6, False, "broken"),
    ],
    ids=["hidden", "shown", "not-free"],
)
def test_what_no_outcome_of_a_free_run_shows_is_left_open(later, free, kind):
    """A factor that may be undone, for all that the noise of the outcome lets see."""
    chain = judge_chain(
        [
            compare("follows", "reduced_gradient", error=1e-3, bound=1e-7),
            compare("reference", "applied_gradient", error=later, bound=1e-2),
        ],
        {},
        free=free,
    )
    assert [link.comparison.phase for link in getattr(chain, kind)][:1] == [
        "reduced_gradient"
    ]


@pytest.mark.parametrize(
    ("second", "later", "is_fault"),
    [
        (1.0, {"error": 0.0, "bound": 2.0}, False),
        (2.0, {"error": 0.0, "bound": 2.0}, True),
        (1.0, {"error": 1.0, "bound": 1e-6}, True),
    ],
    ids=["the-same", "another", "shown"],
)
def test_a_factor_that_was_undone_is_no_fault_where_noise_hides_the_outcome(
    second, later, is_fault
):
    """In the first step all is right behind a sum that is twice as large as it should.

    In the second one noise may hide what becomes of such a factor, and of no other.
    """
    judged = (
        compare("follows", "reduced_gradient", error=1.0, bound=1e-6),
        compare("reference", "applied_gradient", error=0.0, bound=1e-6),
        compare("follows", "reduced_gradient", error=second, bound=1e-6, step=1),
        compare("reference", "applied_gradient", **later, step=1),
    )
    chain = judge_chain(judged, {}, free=False)
    assert judged[0] in chain.forgiven
    assert (judged[2] in chain.forgiven, judged[2] in chain.broken) == (
        not is_fault,
        is_fault,
    )


NAN = float("nan")


def spoil(observed, expected):
    """A sum of local gradients of which some numbers are not finite."""
    item = compare("reference", "local_gradient", error=math.inf, bound=1e-6)
    pair = Pair(
        key=item.comparison.key,
        relation="reference",
        against=GLOBAL,
        observed=np.array(observed),
        expected=np.array(expected),
        margin=Margin(bound=1e-6),
        dtype="float32",
    )
    return replace(item, pair=pair)


@pytest.mark.parametrize(
    ("observed", "expected", "change", "undone"),
    [
        ([1.0, NAN], [NAN, 2.0], 0.0, True),
        ([1.0, NAN], [math.inf, 2.0], 0.0, True),
        ([1.0, NAN], [NAN, 2.0], 1.0, False),
        ([1.0, NAN], [1.0, 2.0], 0.0, False),
        ([1.0, 2.0], [NAN, 2.0], 0.0, False),
        ([1.0, NAN, 3.0], [NAN, 2.0, 4.0], 0.0, False),
    ],
    ids=[
        "elsewhere",
        "inf-for-nan",
        "not-left-out",
        "finite-on-one-device",
        "finite-on-the-replicas",
        "another-number-beside",
    ],
)
@pytest.mark.parametrize("error", [0.0, 1.0], ids=["all-leave-out", "go-on"])
def test_where_nan_is_does_not_matter_if_one_device_leaves_the_step_out(
    observed, expected, change, undone, error
):
    """Replicas that go on all the same are wrong later."""
    variable = compare("reference", "variable", error=error, bound=1e-6)
    left = replace(variable.comparison, change=change)
    chain = judge_chain(
        [spoil(observed, expected), replace(variable, comparison=left)], {}, free=False
    )
    assert [link.comparison.phase for link in chain.forgiven] == (
        ["local_gradient"] if undone else []
    )
    assert bool(chain.broken) == (not undone or error > 0)


@pytest.mark.parametrize(
    ("own", "undone"), [(0.0, True), (0.4, False)], ids=["right", "wrong"]
)
def test_a_value_that_the_reference_has_as_well_is_right(own, undone):
    """As an average of N times the shares, which do not add up to it."""
    chain = judge_chain(
        [
            compare("follows", "reduced_gradient", error=0.5, bound=1e-7),
            compare("reference", "reduced_gradient", error=own, bound=1e-5),
        ],
        {},
        free=False,
    )
    assert (len(chain.forgiven), len(chain.broken)) == ((1, 0) if undone else (0, 1))


@pytest.mark.parametrize("free", [True, False])
def test_what_examples_lead_goes_on_from_what_a_free_run_begins_with(free):
    """In the other tiers each step starts from what one device has."""
    begun = compare("reference", "variable", error=1.0, bound=1e-6, step=INITIAL)
    led = compare("led", "variable", error=1.0, bound=1e-6)
    chain = judge_chain([begun, led], {}, free=free)
    assert begun in chain.broken
    assert led in (chain.following if free else chain.broken)


def test_copies_that_one_step_leaves_wrong_are_each_a_fault():
    """What steps after it make of these is not."""
    wrong = {"error": 1.0, "bound": 1e-6}
    first, second = (
        compare("average", "variable", variable=name, **wrong) for name in "ab"
    )
    later = compare("average", "variable", step=1, **wrong)
    chain = judge_chain([first, second, later], {}, free=False)
    assert chain.broken == (first, second)
    assert chain.following == (later,)


@pytest.mark.parametrize(("wrong", "follows"), [(0, True), (1, False)])
def test_what_an_earlier_call_applies_is_not_made_of_a_later_sum(wrong, follows):
    """Though every sum of a step comes before whatever it applies."""
    errors = {"error": 1.0, "bound": 1e-6}
    summed = compare("follows", "reduced_gradient", call=wrong, **errors)
    applied = compare("reference", "applied_gradient", call=0, **errors)
    chain = judge_chain([summed, applied], {}, free=False)
    assert summed in chain.broken
    assert applied in (chain.following if follows else chain.broken)
