"""Writes curves as TensorFlow summaries, which TensorBoard reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import tensorflow as tf

_Metadata = tf.compat.v1.SummaryMetadata


def summarise(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write the curves of a check.

    Args:
        payload: `source`, a JSON file with a list of curves that have the fields of
            `distbench.summaries.Scalar`, and `folder`, where their folders are made.
    """
    source, folder = Path(payload["source"]), Path(payload["folder"])
    # What tf.summary.scalar does is TensorBoard's own code, and TensorFlow has not
    # installed that since 2.21; the ops and the format are TensorFlow's.
    metadata = _Metadata(
        plugin_data=_Metadata.PluginData(plugin_name="scalars"),
        data_class="DATA_CLASS_SCALAR",
    )
    curves = sorted(json.loads(source.read_text("utf-8")), key=lambda c: c["folder"])
    for place, members in groupby(curves, key=lambda curve: curve["folder"]):
        writer = tf.summary.create_file_writer(str(folder / place))
        with writer.as_default():
            for curve in members:
                for step, value in zip(curve["steps"], curve["values"], strict=True):
                    number = tf.constant(value, tf.float32)
                    tf.summary.write(curve["tag"], number, step=step, metadata=metadata)
        writer.close()
    return {}
