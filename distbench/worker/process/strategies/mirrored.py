"""The strategy of devices that each have a copy of all variables."""

from __future__ import annotations

import tensorflow as tf

from distbench.cluster import ClusterSpec


def make_strategy(spec: ClusterSpec, _: str) -> tf.distribute.Strategy:
    """See `distbench.worker.process.strategies.make_strategy`."""
    return tf.distribute.MirroredStrategy(spec.worker_devices)
