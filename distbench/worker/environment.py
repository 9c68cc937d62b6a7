"""What a task ran on: versions, devices and settings."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

_SETTINGS = (
    "CUDA_VISIBLE_DEVICES",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "TF_DETERMINISTIC_OPS",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_USE_LEGACY_KERAS",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
)
"""Environment variables that change what TensorFlow computes or where."""


def describe_environment() -> Mapping[str, Any]:
    """Versions, devices and settings that a result depends on."""
    versions = {
        name.replace("-", "_"): _find_version(name)
        for name in ("tensorflow", "tf-keras", "keras", "numpy")
    }
    return {
        **versions,
        "devices": [device.name for device in tf.config.list_logical_devices()],
        "variables": {
            name: os.environ[name] for name in _SETTINGS if name in os.environ
        },
    }


def _find_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
