"""Which axes of what is drawn belong to the examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from distbench.worker.taps.layouts import UNKNOWN, Layouts, count_traced

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(
    ("first", "then", "axes"),
    [
        ((24, 5), (12, 5), (0,)),
        ((4, 24), (4, 12), (1,)),
        ((12, 5), (12, 5), ()),  # as many features as examples
        ((72, 5), (36, 5), (0,)),  # three rows for each example
        ((25, 5), (13, 5), ()),
        ((24, 24), (12, 12), (0, 1)),
        ((24,), (12, 5), None),  # another draw
    ],
)
def test_an_axis_that_grows_with_the_batch_is_theirs(
    first: tuple[int, ...], then: tuple[int, ...], axes: tuple[int, ...] | None
) -> None:
    layouts = Layouts()
    assert layouts.find("a draw", 24, first) is None
    assert layouts.find("a draw", 12, then) == axes
    assert layouts.find("another", 12, then) is None


def test_a_trace_for_any_size_leaves_them_open() -> None:
    layouts = Layouts()
    assert layouts.find("a draw", None, (None, 5)) == (0,)
    assert layouts.find("a draw", None, (4, 5)) == ()
    assert layouts.find("a draw", UNKNOWN, (4, 5)) is None


@pytest.mark.parametrize(
    ("repeat", "stacked"),
    [
        (lambda x: tf.concat([x, x, x], 0), True),
        (lambda x: tf.tile(x, [3, 1]), True),
        (lambda x: tf.repeat(x, 3, axis=0), False),
        (lambda x: tf.reshape(tf.ones([3, 1]) * x[:, None], [-1, 2]), False),
    ],
    ids=["concat", "tile", "repeat", "reshape"],
)
def test_batches_one_after_the_other_are_told_from_rows_side_by_side(
    repeat: Any, stacked: bool
) -> None:
    layouts = Layouts()

    @tf.function
    def step(batch: tf.Tensor) -> None:
        graph, rows = tf.compat.v1.get_default_graph(), repeat(batch).shape[0]
        examples = count_traced((batch, batch[:, 0]))
        assert layouts.is_stacked("a draw", graph, examples, rows) == stacked

    step.get_concrete_function(np.ones((4, 2), np.float32))
    open_batch = tf.TensorSpec([None, 2], tf.float32)
    step.get_concrete_function(open_batch)  # as it was for some
    assert layouts.is_stacked("a draw", None, 4, 12) == stacked
