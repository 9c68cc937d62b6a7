"""A sum that has no room in its dtype is Inf, and is right so."""

from __future__ import annotations

import numpy as np
import pytest
from training_simulator import RIGHT, Setup, Simulation

from distbench.compare.factor import Factor
from distbench.compare.measure import measure_error
from distbench.compare.reduced import pair_sum
from distbench.diagnose.judge import judge
from distbench.trace import TraceKey
from distbench.trace.values import get_numbers
from distbench.verdict import Status

KEY = TraceKey(step=0, phase="reduced_gradient", variable="w", replica=0)
INF = np.inf


def is_right(seen, terms, factor=1.0, dtype="float16", known=None):
    value = np.array([seen, factor], dtype)
    parts = tuple(np.array([term, 1.0 / len(terms)], dtype) for term in terms)
    pair = pair_sum(KEY, value, parts, Factor(factor), dtype, known, exact=False)
    return not measure_error(pair.observed, pair.expected, pair.margin).wrong


@pytest.mark.parametrize(
    ("seen", "terms", "right"),
    [
        (INF, [4e4, 4e4], True),
        (-INF, [-4e4, -4e4], True),
        (-INF, [4e4, 4e4], False),
        (65504, [4e4, 4e4], False),
        (np.nan, [4e4, 4e4], False),
        (INF, [3e4, 3e4], False),
        # Whether a part of it overflows depends on the order.
        (INF, [4e4, 4e4, -4e4], True),
        (4e4, [4e4, 4e4, -4e4], True),
        (-INF, [4e4, 4e4, -4e4], False),
        (-INF, [6e4, 6e4, 6e4, -4e4, -4e4], True),
        (np.nan, [4e4, 4e4, -4e4, -4e4], True),
        (np.nan, [4e4, 4e4, -4e4], False),
        (INF, [INF, 1.0], True),
        (-INF, [INF, 1.0], False),
    ],
)
def test_a_sum_that_has_no_room_is_infinite(seen, terms, right):
    assert is_right(seen, terms) is right


def test_a_wider_dtype_has_room():
    assert not is_right(INF, [4e4, 4e4], dtype="float32")
    assert is_right(INF, [3e38, 3e38], dtype="float32")


def test_what_is_divided_afterwards_may_have_no_room_before():
    terms = [4e4, 4e4]
    assert is_right(INF, terms, factor=0.5)
    assert is_right(4e4, terms, factor=0.5)
    assert not is_right(INF, [3e4, 3e4], factor=0.5)


def test_gradients_of_which_the_sum_has_no_room_are_no_mistake():
    """It was told that no known cause explains the sum."""
    setup = Setup(replicas=2, tier="bounded", shards_known=True, dtype="float16")
    simulation = Simulation(setup)
    factor = np.float16(40)
    simulation.batches = [
        (x * factor, ids, y * factor) for x, ids, y in simulation.batches
    ]
    evidence = simulation.observe(RIGHT)
    reduced = evidence.observed.select(phase="reduced_gradient")
    assert not all(np.isfinite(get_numbers(value)).all() for _, value in reduced)
    assert judge(evidence).status is Status.PASS
