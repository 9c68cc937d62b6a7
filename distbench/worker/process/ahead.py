"""What every step does for the first time in a process, done by one of the bench's own.

A task that waits to be wanted has time for it. The first step of a process loads what
later ones find loaded: kernels, TensorFlow's graph passes, Python's memory.
"""

from __future__ import annotations

import tensorflow as tf


def take_a_step(strategy: tf.distribute.Strategy) -> None:
    """Take a step with a sum over all replicas; leaves nothing in the strategy.

    Args:
        strategy: That of the task; not one with parameter servers.
    """
    with strategy.scope():
        kernel = tf.Variable([[0.5], [0.25]])

    def replica_step(features: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((features @ kernel) ** 2.0)
        gradient = tape.gradient(loss, kernel)
        context = tf.distribute.get_replica_context()
        kernel.assign_sub(0.125 * context.all_reduce("sum", gradient))
        return loss

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def step(features: tf.Tensor) -> tf.Tensor:
        return strategy.run(replica_step, args=(features,))

    step(tf.constant([[1.0, 2.0]]))
