"""The GPUs of a task: there as many as it was given, and split where replicas share."""

from __future__ import annotations

import tensorflow as tf

from distbench.cluster import ClusterSpec
from distbench.errors import ClusterError, count_things
from distbench.gpus import count_sharers

_LOGICAL_MIB = 2**15
"""What a replica may take of a GPU that it shares. TensorFlow wants a limit; this is no
share: memory is taken as needed, and who finds none ends as on a GPU of its own."""


def open_gpus(spec: ClusterSpec, role: str) -> None:
    """Make a logical GPU for each replica of this task, and have them keep all digits.

    Args:
        spec: The resolved cluster spec.
        role: That of the task: chief and parameter servers have no GPU.

    Raises:
        ClusterError: TensorFlow does not find those that the task was given.
    """
    # TF32 keeps 10 bits of a product's operands: far more than rounding.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    replicas = spec.replicas_per_worker if role == "worker" else 0
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) * count_sharers() < replicas:
        raise ClusterError(
            f"'{spec}' needs {count_things(replicas, 'GPU')} in this task, and "
            f"TensorFlow finds {len(gpus)}, although the driver lists more: most often "
            "CUDA's libraries are missing (pip install 'tensorflow[and-cuda]'), and "
            "tf.config.list_physical_devices('GPU') says in a shell which. A spec with "
            "@cpu does without"
        )
    for place, gpu in enumerate(gpus):
        count = len(range(place, replicas, len(gpus)))
        if count > 1:
            logical = tf.config.LogicalDeviceConfiguration(memory_limit=_LOGICAL_MIB)
            tf.config.set_logical_device_configuration(gpu, [logical] * count)
