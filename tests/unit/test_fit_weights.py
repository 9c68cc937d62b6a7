"""Weights are fitted only where more numbers than weights speak for them."""

from __future__ import annotations

import numpy as np

from distbench.diagnose.clues.fit import Row, fit_weights

RNG = np.random.default_rng(3)


def make_rows(count, copies):
    """Of each of so many values the copies of all replicas."""
    rows = []
    for _ in range(count):
        features = tuple(RNG.normal(size=1) for _ in range(2))
        target = 2 * features[0] - features[1]
        rows += [Row(number=0, target=target, features=features)] * copies
    return rows


def test_what_all_replicas_hold_alike_counts_once():
    assert fit_weights(make_rows(2, copies=4)) is None
    assert fit_weights(make_rows(3, copies=1)) is None


def test_as_many_values_that_differ_determine_the_weights():
    found = fit_weights(make_rows(4, copies=2))
    assert found is not None
    assert np.allclose(found, [2, -1])


def test_copies_that_come_first_hide_no_others():
    found = fit_weights([*make_rows(1, copies=100), *make_rows(3, copies=1)])
    assert found is not None
