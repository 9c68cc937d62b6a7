"""What every step does for the first time in a process, done by one of the bench's own.

A task that waits to be wanted has time for it. The first step of a process loads what
later ones find loaded: kernels, TensorFlow's graph passes, Python's memory.
"""

from __future__ import annotations

from contextlib import ExitStack

import tensorflow as tf
from tf_keras.optimizers import legacy

from distbench.cluster import ClusterSpec
from distbench.worker.process.intercept import replace_attribute
from distbench.worker.process.joining import join_no_more
from distbench.worker.process.strategies import make_strategy

_APART = 1 << 20
"""First of the keys by which replicas meet in collectives: far from those of others."""


def take_a_step(strategy: tf.distribute.Strategy) -> None:
    """Take a step with a sum over all replicas; leaves nothing in the strategy.

    Args:
        strategy: That of the task; not one with parameter servers.
    """
    with strategy.scope():
        kernel = tf.Variable([[0.5], [0.25]])
        optimizer = legacy.Adam(0.125)

    def replica_step(features: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((features @ kernel) ** 2.0)
        optimizer.minimize(loss, [kernel], tape=tape)
        context = tf.distribute.get_replica_context()
        return context.all_reduce("sum", loss)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def step(features: tf.Tensor) -> tf.Tensor:
        return strategy.run(replica_step, args=(features,))

    step(tf.constant([[1.0, 2.0]]))


def take_a_step_apart(spec: ClusterSpec) -> None:
    """Take one under a strategy beside which the user's own code makes another.

    Args:
        spec: The cluster of the task; not one with parameter servers.
    """
    kinds = tf.distribute.MultiWorkerMirroredStrategy, tf.distribute.MirroredStrategy
    with ExitStack() as stack:
        # Each kind counts the keys of its collectives from 1 otherwise, and TensorFlow
        # remembers the shapes under a key.
        for kind in kinds:
            stack.enter_context(replace_attribute(kind, "_collective_key_base", _APART))
        strategy = make_strategy(spec)
    if spec.traits.collective:
        join_no_more()
    take_a_step(strategy)
