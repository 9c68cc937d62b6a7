"""A script's own MirroredStrategy, in a task of a cluster of workers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import mirrored_strategy


def mirror_own_devices(strategy: tf.distribute.MultiWorkerMirroredStrategy) -> None:
    """Have a MirroredStrategy that is given no devices take those of this process.

    Scripts make one on their top level, so a task does as it imports them. TensorFlow
    takes all devices that it knows, which are those of every worker once they have
    joined, and making a variable on another worker's is a segmentation fault.

    Args:
        strategy: What the task joined the others by.
    """
    place = f"/job:worker/replica:0/task:{strategy.cluster_resolver.task_id}/"
    list_all = mirrored_strategy.all_local_devices

    def list_own(num_gpus: int | None = None) -> list[Any]:
        own = [device for device in list_all() if device.name.startswith(place)]
        return own[:num_gpus]

    mirrored_strategy.all_local_devices = list_own
