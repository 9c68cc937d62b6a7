"""The strategy of workers whose replicas meet in collectives."""

from __future__ import annotations

import tensorflow as tf

from distbench.cluster import ClusterSpec
from distbench.gpus import count_sharers
from distbench.worker.process.empty import refuse_empty
from distbench.worker.process.own_devices import mirror_own_devices


def make_strategy(spec: ClusterSpec, _: str) -> tf.distribute.Strategy:
    """See `distbench.worker.process.strategies.make_strategy`."""
    implementation = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        # NCCL refuses two workers on one GPU.
        implementation=implementation.AUTO
        if spec.device == "gpu" and count_sharers() == 1
        else implementation.RING
    )
    joined = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    mirror_own_devices(joined)
    if spec.device == "cpu":
        refuse_empty()
    return joined
