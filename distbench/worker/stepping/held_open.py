"""Has a race between steps in flight show, if there can be one.

Between the reading of a variable and the assignment of what came of it another step may
write; that lasts for microseconds, and whether it happens is chance. No order is
promised, so the assignment may as well come later, and what others wrote is lost for
certain.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from distbench.worker.state.torn import list_overwrites

HELD_S = 0.05
"""How long an assignment waits: longer than a step of small models takes."""


def hold_open(graph: Any) -> None:
    """Have each assignment of what its variable was read for wait a while.

    Args:
        graph: Of a step, while it is traced; a step without such an op stays as it is.
    """
    for op in list_overwrites(graph):
        with tf.control_dependencies([op.inputs[1]]):
            begun = tf.timestamp()
        ended = tf.while_loop(
            lambda now, begun: now < begun + HELD_S,
            lambda _, begun: (tf.timestamp(), begun),
            (begun, begun),
        )
        op._add_control_input(ended[0].op)
