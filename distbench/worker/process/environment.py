"""What a task ran on: versions, devices and settings."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.config import is_op_determinism_enabled

from distbench.gpus import SHARED_BY, VISIBLE
from distbench.launch.bind_filter import measure_listening

_SETTINGS = (
    VISIBLE,
    SHARED_BY,
    "PYTHONHASHSEED",
    "TF_DETERMINISTIC_OPS",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_USE_LEGACY_KERAS",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
)
"""Environment variables that change what TensorFlow computes, in which order or where;
and so do all that begin with `NCCL_`."""


def _find_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


_VERSIONS = {
    name.replace("-", "_"): _find_version(name)
    for name in ("tensorflow", "tf-keras", "keras", "numpy")
}
"""Looked up where this is imported: by the fork server, once for all of its tasks."""


def find_keras_setting() -> str:
    """Which Keras `tf.keras` is by the environment now: `legacy` or `3`.

    TensorFlow reads the same variable as it is imported, for where the packages below
    `tensorflow.keras` lie, and as `tf.keras` is first used (lazy_loader.py).
    """
    is_legacy = os.environ.get("TF_USE_LEGACY_KERAS") in ("true", "True", "1")
    return "legacy" if is_legacy else "3"


def describe_environment() -> Mapping[str, Any]:
    """Versions, devices and settings that a result depends on, and where it listens."""
    return {
        **_VERSIONS,
        "devices": [device.name for device in tf.config.list_logical_devices()],
        "variables": {
            name: value
            for name, value in sorted(os.environ.items())
            if name in _SETTINGS or name.startswith("NCCL_")
        },
        "settings": {
            # With several, an op's sum is split among them as they come free.
            "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads(),
            "listens_on": measure_listening(),
            "op_determinism": is_op_determinism_enabled(),
            "tensor_float_32": (
                tf.config.experimental.tensor_float_32_execution_enabled()
            ),
        },
    }
