"""A step tells in which order it assigns to variables, and what of it is late."""

from __future__ import annotations

import pytest
import tensorflow as tf

from distbench.worker.state.handles import find_written_late
from distbench.worker.state.variables import VariableTable, list_state
from distbench.worker.taps.written import order_writes

pytestmark = pytest.mark.cluster


def test_the_first_assignment_to_each_counts() -> None:
    derived, kept, sometimes, left = (
        tf.Variable(1.0, name=name) for name in ("derived", "kept", "sometimes", "left")
    )

    @tf.function
    def step(x: tf.Tensor) -> None:
        kept.assign(0.9 * kept + x)
        tf.cond(x > 0, lambda: sometimes.assign(x), lambda: sometimes)
        derived.assign_sub(kept)
        kept.assign_add(x + left)

    graph = step.get_concrete_function(tf.constant(1.0)).graph
    table = VariableTable(list_state([derived, kept, sometimes, left], []))
    assert order_writes(graph, table) == ("kept", "derived")


def test_only_what_is_written_after_an_update_can_be_made_of_it() -> None:
    weights = tf.Variable(1.0, name="weights")
    before, after, within, untouched = (
        tf.Variable(1.0, name=name, trainable=False)
        for name in ("before", "after", "within", "untouched")
    )

    @tf.function
    def follow() -> None:
        within.assign(weights)

    @tf.function
    def step(x: tf.Tensor) -> None:
        before.assign(weights * x)
        weights.assign_sub(x * untouched)
        after.assign(weights)
        follow()
        before.read_value()

    graph = step.get_concrete_function(tf.constant(1.0)).graph
    variables = [weights, before, after, within, untouched]
    found = find_written_late(graph, VariableTable(list_state(variables, [])))
    assert found == {"weights", "after", "within"}
