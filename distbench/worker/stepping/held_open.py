"""Has a race between steps in flight show, if there can be one.

Between the reading of a variable and the assignment of what came of it another step may
write, and so it may between the writing of a slot and its reading for the variable.
That lasts for microseconds, and whether it happens is chance. No order is promised, so
the second of the two may as well come later, and then what others wrote is lost or
taken twice for certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from distbench.worker.state.torn import list_overwrites, list_read_back
from distbench.worker.state.variables import VariableTable

HELD_S = 0.05
"""How long an op waits: longer than a step of small models takes."""
_MOST = 8
"""So many ops of either kind wait, of a model with more variables or shards those that
lie evenly among them: waiting takes a core, and one is enough for a race to show."""


def hold_open(graph: Any, table: VariableTable) -> None:
    """Have the second half of each update in two parts wait a while.

    Args:
        graph: Of a step, while it is traced; a step without such an op stays as it is.
        table: The subject's variables.
    """
    for op in _spread(list_overwrites(graph)):
        _hold(op, op.inputs[1])
    for written, op in _spread(list_read_back(graph, table)):
        _hold(op, written)


def _spread(found: Sequence[Any]) -> Sequence[Any]:
    step = max(1, -(-len(found) // _MOST))
    return found[::step]


def _hold(op: Any, since: Any) -> None:
    """Have an op wait, from when another one or a tensor is done."""
    with tf.control_dependencies([since]):
        begun = tf.timestamp()
    ended = tf.while_loop(
        lambda now, begun: now < begun + HELD_S,
        lambda _, begun: (tf.timestamp(), begun),
        (begun, begun),
    )
    op._add_control_input(ended[0].op)
