"""The bounds hold for correct sums, and are not much wider than they must be."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from distbench.compare.arrays.bounds import (
    FALSE_ALARM,
    bound_additions,
    bound_sum,
    compute_gamma,
    find_roundoff,
    find_t_quantile,
    group_alike,
    limit_partial_sums,
    predict_spread,
    spread_additions,
    spread_sum,
)
from distbench.compare.arrays.measure import BITWISE, Margin, is_wrong, measure_error
from distbench.compare.arrays.ratio import fit_ratio
from distbench.trace.numbers import round_to


def add_in_turn(terms, dtype):
    total = terms[0].astype(dtype)
    for term in terms[1:]:
        total = (total + term.astype(dtype)).astype(dtype)
    return total.astype(np.float64)


def make_terms(seed, replicas, size, dtype):
    rng = np.random.default_rng(seed)
    terms = rng.normal(size=(replicas, size)) * rng.lognormal(size=(1, size))
    return terms.astype(dtype).astype(np.float64)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("replicas", [2, 3, 8, 64])
def test_a_sum_stays_within_its_bound(replicas, dtype):
    u = find_roundoff(dtype)
    largest = 0.0
    for seed in range(20):
        terms = make_terms(seed, replicas, 200, dtype)
        error = np.abs(add_in_turn(terms, dtype) - terms.sum(0))
        bound = bound_sum(np.abs(terms).sum(0), replicas - 1, u)
        assert np.all(error <= bound)
        largest = max(largest, float(np.max(error / bound)))
    assert largest > 1e-2


@pytest.mark.parametrize("replicas", [2, 8, 64])
def test_ratio_and_sum_of_errors_stay_within_their_spread(replicas):
    u = find_roundoff("float32")
    quotients = []
    for seed in range(30):
        terms = make_terms(seed, replicas, 300, "float32")
        s, size = terms.sum(0), np.abs(terms).sum(0)
        error = add_in_turn(terms, "float32") - s
        groups = group_alike(s)
        along = spread_sum(s, size, groups, replicas - 1, u)
        plain = spread_sum(np.ones_like(s), size, groups, replicas - 1, u)
        quotients += [abs(float(error @ s)) / along, abs(float(error.sum())) / plain]
    assert max(quotients) <= 1
    assert max(quotients) > 1e-2


def add_in_pairs(terms, dtype):
    terms = list(terms)
    while len(terms) > 1:
        sums = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = [*(round_to(s, dtype) for s in sums), *terms[2 * len(sums) :]]
    return terms[0]


def add_one_by_one(terms, dtype):
    total = terms[0]
    for term in terms[1:]:
        total = round_to(total + term, dtype)
    return total


def make_addends(seed, replicas, dtype):
    """Of both signs and of one, and with all of one sign first."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(replicas, 60))
    sorted_by_sign = np.sort(rng.normal(size=(replicas, 60)), axis=0)
    terms = np.concatenate([mixed, np.abs(mixed), sorted_by_sign], axis=1)
    return round_to(terms, dtype)


def limit_sum(terms, dtype):
    """Bound, ratio and sum of a sum of these addends."""
    u, s = find_roundoff(dtype), terms.sum(0)
    partial, groups = limit_partial_sums(list(terms)), group_alike(s)
    return Margin(
        bound=bound_additions(partial, s, u),
        ratio=spread_additions(s, partial, groups, u) / float(s @ s),
        total=spread_additions(np.ones_like(s), partial, groups, u),
    )


@pytest.mark.first(6)
@pytest.mark.parametrize("add", [add_one_by_one, add_in_pairs])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("replicas", [2, 3, 8, 32])
def test_a_sum_of_known_addends_stays_within_a_tighter_bound(replicas, dtype, add):
    u = find_roundoff(dtype)
    largest = 0.0
    for seed in range(20):
        terms = make_addends(seed, replicas, dtype)
        margin = limit_sum(terms, dtype)
        measure = measure_error(add(terms, dtype), terms.sum(0), margin)
        assert not measure.wrong
        largest = max(largest, measure.error_over_bound)
        if u * replicas < 0.02:
            # γ of the leaves below each node is negligible: nothing is lost by it.
            loose = bound_sum(np.abs(terms).sum(0), replicas - 1, u)
            assert np.all(margin.bound <= loose * (1 + 4 * replicas * u))
    assert largest > 0.05


@pytest.mark.parametrize("seed", range(5))
def test_no_order_has_larger_partial_sums_and_one_reaches_each(seed):
    terms = np.random.default_rng(seed).normal(size=5)
    limits = limit_partial_sums(list(terms[:, None]))[:, 0]
    orders = np.array([np.abs(np.cumsum(order)) for order in permutations(terms)])
    reached = orders.max(axis=0)[1:]
    assert np.all(reached <= limits * (1 + 1e-12))
    # A partial sum of j addends may hold fewer of the sign that counts.
    assert limits[0] == pytest.approx(np.maximum.accumulate(orders.max(0))[1])


def test_a_small_factor_is_seen_in_the_sum_of_32_gradients_of_one_sign():
    terms = np.abs(make_terms(0, 32, 2, "float32")) + 1
    terms = round_to(terms, "float32")
    s, margin = terms.sum(0), limit_sum(terms, "float32")
    assert not is_wrong(add_one_by_one(terms, "float32"), s, margin)
    assert is_wrong(round_to(s * (1 + 1e-6), "float32"), s, margin)
    loose = bound_sum(np.abs(terms).sum(0), 31, find_roundoff("float32"))
    assert not is_wrong(round_to(s * (1 + 1e-6), "float32"), s, Margin(bound=loose))


def test_one_addition_may_be_off_by_half_a_unit_of_its_result():
    """However large the addends are that cancel."""
    terms = np.array([[1.0], [-1.0 + 2.0**-20]])
    bound = bound_additions(limit_partial_sums(terms), terms.sum(0), 2.0**-24)
    assert bound[0] == pytest.approx(2.0**-44, rel=1e-6)


def test_equal_significands_count_as_one_rounding():
    size = np.ones(1000)
    equal = spread_sum(size, size, group_alike(size), 1, 2.0**-24)
    others = group_alike(np.linspace(1, 1.9, 1000))
    mixed = spread_sum(size, size, others, 1, 2.0**-24)
    assert equal == pytest.approx(mixed * math.sqrt(1000), rel=1e-6)


@pytest.mark.parametrize(("n", "gamma"), [(0, 0.0), (1, 1 / 255), (256, math.inf)])
def test_gamma_of_bfloat16(n, gamma):
    assert compute_gamma(n, find_roundoff("bfloat16")) == pytest.approx(gamma)


def test_an_infinite_gamma_allows_nothing_where_all_addends_are_0():
    bound = bound_sum(np.array([0.0, 1.0]), 256, find_roundoff("bfloat16"))
    assert bound.tolist() == [0.0, math.inf]


@pytest.mark.parametrize(
    ("freedom", "tail", "t"),
    [(1, 0.5, 1.0), (3, 0.05, 3.1824), (4, 0.01, 4.6041), (9, 0.001, 4.7809)],
)
def test_the_quantiles_are_those_of_students_table(freedom, tail, t):
    assert find_t_quantile(freedom, tail) == pytest.approx(t, abs=1e-4)


def test_few_samples_predict_a_wider_spread_than_many():
    assert predict_spread([]) == math.inf
    few, many = predict_spread([1.0] * 3), predict_spread([1.0] * 300)
    assert few > 100
    assert 4.8 < many < 5.2


def test_a_prediction_holds_for_the_next_sample():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(4000, 4))
    assert all(abs(d[3]) <= predict_spread(list(d[:3])) for d in draws)
    assert FALSE_ALARM < 1 / 4000


def test_a_ratio_next_to_one_keeps_its_digits():
    s = np.random.default_rng(1).normal(size=50)
    fit = fit_ratio(s * (1 + 1e-12), s)
    assert fit is not None
    assert fit.ratio - 1 == pytest.approx(1e-12, rel=1e-3)
    assert fit.residual_share < 1e-3


@pytest.mark.parametrize("expected", [np.zeros(3), np.array([1.0, np.inf, 2.0])])
def test_there_is_no_ratio_to_nothing(expected):
    assert fit_ratio(np.ones(3), expected) is None


def test_a_small_systematic_factor_is_seen_by_the_ratio_alone():
    rng = np.random.default_rng(2)
    s = rng.normal(size=10_000)
    observed = s * (1 + 1e-3) + rng.normal(size=s.size) * 1e-3
    loose = Margin(bound=1.0)
    assert not is_wrong(observed, s, loose)
    assert is_wrong(observed, s, Margin(bound=1.0, ratio=1e-4))


def test_a_constant_added_everywhere_is_seen_by_the_sum():
    s = np.random.default_rng(3).normal(size=1000)
    margin = Margin(bound=1e-3, total=1e-2)
    assert not is_wrong(s + 1e-4, s, Margin(bound=1e-3))
    assert is_wrong(s + 1e-4, s, margin)
    assert not is_wrong(s, s, margin)


@pytest.mark.parametrize(
    ("observed", "expected", "wrong"),
    [
        ([np.nan, 1.0], [np.nan, 1.0], False),
        ([np.nan, 1.0], [0.0, 1.0], True),
        ([np.inf, 1.0], [np.inf, 1.0], False),
        ([np.inf, 1.0], [-np.inf, 1.0], True),
        ([1.0, 1.0], [1.0, 1.0], False),
        ([0.0, 1.0], [-0.0, 1.0], False),
    ],
    ids=["both-nan", "one-nan", "both-inf", "other-inf", "equal", "signed-zero"],
)
def test_values_that_are_not_finite(observed, expected, wrong):
    measure = measure_error(np.array(observed), np.array(expected), BITWISE)
    assert measure.wrong is wrong
    assert (measure.error == 0) is not wrong


def test_another_shape_is_wrong():
    assert measure_error(np.ones(3), np.ones((3, 1)), Margin(bound=9.0)).wrong
