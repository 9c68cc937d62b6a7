"""The strategy of one device, which is TensorFlow's default one."""

from __future__ import annotations

import tensorflow as tf

from distbench.cluster import ClusterSpec


def make_strategy(_: ClusterSpec, __: str) -> tf.distribute.Strategy:
    """See `distbench.worker.process.strategies.make_strategy`."""
    return tf.distribute.get_strategy()
