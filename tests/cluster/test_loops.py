"""Loops that AutoGraph traces pass by pass, and those that it leaves as they are."""

from __future__ import annotations

import pytest

import distbench
from distbench.samples.lazy import tf

pytestmark = pytest.mark.cluster


def over_range(x):
    for number in tf.range(3):
        x = 2.0 * x + tf.cast(number, tf.float32)
    return x


def over_rows(x):
    total = tf.zeros([])
    for row in tf.reshape(x * [1.0, 2.0, 4.0], [3, 1]):
        total += row[0]
    return total


def to_an_end_that_is_computed(x):
    for _ in tf.range(tf.cast(x, tf.int32)):
        x += 1.0
    return x


def until_it_breaks(x):
    for number in tf.range(5):
        if number > 1:
            break
        x += 1.0
    return x


def of_many(x):
    for _ in tf.range(100):
        x += 1.0
    return x


def trace(loop) -> tuple[int, float]:
    """How many loops are left in the graph, and what it makes of 2."""
    from distbench.worker.process.loops import Loops

    loops = Loops()
    loops.unrolls = True
    loops.watch()
    traced = tf.function(loop).get_concrete_function(tf.TensorSpec([]))
    kinds = [op.type for op in traced.graph.get_operations()]
    return sum("While" in kind for kind in kinds), float(traced(tf.constant(2.0)))


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        (over_range, (0, 20.0)),
        (over_rows, (0, 14.0)),
        (to_an_end_that_is_computed, (1, 4.0)),
        (until_it_breaks, (1, 4.0)),
        (of_many, (1, 102.0)),
    ],
)
def test_passes_of_short_loops_of_known_length_are_ops_of_the_graph(
    loop, expected
) -> None:
    (found,) = distbench.run(trace, cluster="one", args=(loop,)).values()
    assert tuple(found) == expected
