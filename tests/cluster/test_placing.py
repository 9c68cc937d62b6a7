"""Where the ops of one device go: the graph says it, so no GPU is needed."""

from __future__ import annotations

import pytest

import distbench

pytestmark = pytest.mark.cluster


def list_places() -> tuple[list[str], list[str]]:
    """Devices of all ops of a step, placed and then not."""
    import tensorflow as tf

    from distbench.worker.process.placing import place_as_replica

    strategy = tf.distribute.get_strategy()
    steps = tf.Variable(3, dtype=tf.int64)

    def replica_step():
        power = tf.pow(0.9, tf.cast(steps + 1, tf.float32))
        rows = tf.unique(tf.constant([2, 2, 5])).y
        return power * tf.cast(tf.reduce_sum(rows), tf.float32)

    def list_devices() -> list[str]:
        traced = tf.function(lambda: strategy.run(replica_step)).get_concrete_function()
        return [
            op.device
            for op in traced.graph.get_operations()
            if op.type in ("Pow", "Cast", "Unique", "Sum", "Mul")
        ]

    with place_as_replica(strategy):
        placed = list_devices()
    return placed, list_devices()


def test_a_step_says_of_each_op_that_it_belongs_on_the_gpu() -> None:
    placed, left = distbench.run(list_places, cluster="one")["worker", 0]
    assert placed == ["/device:GPU:0"] * 6
    assert left == [""] * 6
