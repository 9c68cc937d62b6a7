"""The strategy of devices that share the variables of a CPU."""

from __future__ import annotations

import tensorflow as tf

from distbench.cluster import ClusterSpec


def make_strategy(spec: ClusterSpec, _: str) -> tf.distribute.Strategy:
    """See `distbench.worker.process.strategies.make_strategy`."""
    return tf.distribute.experimental.CentralStorageStrategy(
        compute_devices=spec.worker_devices, parameter_device="cpu:0"
    )
