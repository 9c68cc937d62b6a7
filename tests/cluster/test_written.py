"""A step tells in which order it assigns to variables."""

from __future__ import annotations

import pytest
import tensorflow as tf

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
