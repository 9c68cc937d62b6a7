"""Where code is traced that TensorFlow runs for each element at once.

What `tf.vectorized_map` and the tape's own `jacobian` are given is traced for element
0, and what it made is then rewritten for all elements. A tensor in there is that of one
element, though it lies in the graph of the step.
"""

from __future__ import annotations

import threading
from typing import Any

from tensorflow.python.ops.parallel_for import control_flow_ops

from distbench.worker.process.intercept import Undo, hide_from_autograph


class Elements:
    """Knows which threads trace one: replicas of a process are threads."""

    def __init__(self) -> None:
        self._local = threading.local()

    @property
    def is_traced(self) -> bool:
        """Whether the calling code is traced for one element."""
        return getattr(self._local, "depth", 0) > 0

    def watch(self) -> Undo:
        """Stand in front of what traces elements.

        Returns:
            A function that puts the original back.
        """
        original = control_flow_ops.pfor

        def pfor(*args: Any, **kwargs: Any) -> Any:
            depth = getattr(self._local, "depth", 0)
            self._local.depth = depth + 1
            try:
                return original(*args, **kwargs)
            finally:
                self._local.depth = depth

        hide_from_autograph(pfor)
        control_flow_ops.pfor = pfor
        return lambda: setattr(control_flow_ops, "pfor", original)
