"""Which tensors the code that is traced now can use."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def is_in_reach(value: Any) -> bool:
    """Whether the code that is traced now can use a tensor: of its graph or around."""
    home = getattr(value, "graph", None)  # what was computed op by op has none
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    while home is not None and graph is not home:
        if graph is None:
            return False
        graph = getattr(graph, "outer_graph", None)
    return True
