"""The strategy of a chief with workers and parameter servers."""

from __future__ import annotations

import tensorflow as tf

from distbench.cluster import ClusterSpec
from distbench.worker.state.partition import make_partitioner


def make_strategy(_: ClusterSpec, partitioner: str) -> tf.distribute.Strategy:
    """See `distbench.worker.process.strategies.make_strategy`."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.ParameterServerStrategy(
        resolver, variable_partitioner=make_partitioner(partitioner)
    )
