"""In how many digits a step computes, as its graph tells."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import tensorflow as tf


def find_narrowest(graph: Any, own: Collection[str]) -> str:
    """The floating-point dtype with the fewest digits in which a step computes.

    A float32 beside float64 is often a hyperparameter of Keras, of which no digit is
    lost: in a model of wider variables it counts if something is rounded to it.

    Args:
        graph: That of a step.
        own: The dtypes of the model's variables.
    """
    definition = graph.as_graph_def()
    nodes = [
        *definition.node,
        *(n for f in definition.library.function for n in f.node_def),
    ]
    seen = {attribute.type for node in nodes for attribute in node.attr.values()}
    for dtype in (tf.bfloat16, tf.float16):
        if dtype.as_datatype_enum in seen:
            return str(dtype.name)
    wide, narrow = (d.as_datatype_enum for d in (tf.float64, tf.float32))
    rounds = any(
        node.op == "Cast"
        and (node.attr["SrcT"].type, node.attr["DstT"].type) == (wide, narrow)
        for node in nodes
    )
    if rounds or (narrow in seen and (wide not in seen or "float32" in own)):
        return "float32"
    return "float64"
