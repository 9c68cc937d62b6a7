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
_MOST = 64
"""So many ops of either kind wait, of a model with more variables or shards those that
lie evenly among them: each has a thread of its own, and one shows a race."""


def hold_open(graph: Any, table: VariableTable) -> None:
    """Have the second half of each update in two parts wait a while.

    Args:
        graph: Of a step, while it is traced; a step without such an op stays as it is.
        table: The subject's variables.
    """
    held = [(op.inputs[-1], op) for op in _spread(list_overwrites(graph))]
    held += _spread(list_read_back(graph, table))
    if not held:
        return
    wait = tf.function(_sleep, autograph=False).get_concrete_function()
    wait.add_to_graph(graph)
    for since, op in held:
        with tf.control_dependencies([since]):
            # Ops with side effects run in the order in which they were made. So would
            # the waits, and after all that the step prints and asserts, which may come
            # after what waits. A call that says to have none has no place in it.
            (ended,) = tf.raw_ops.PartitionedCall(args=[], Tout=[tf.int32], f=wait)
        op._add_control_input(ended.op)


def _spread(found: Sequence[Any]) -> Sequence[Any]:
    step = max(1, -(-len(found) // _MOST))
    return found[::step]


def _sleep() -> Any:
    """Wait without a core: a thread of the dataset's own sleeps.

    It does so for its element, and once more before it knows that there is no other.
    """
    sleeping = tf.raw_ops.SleepDataset(
        input_dataset=tf.data.experimental.to_variant(tf.data.Dataset.from_tensors(0)),
        sleep_microseconds=tf.constant(int(HELD_S / 2 * 1e6), tf.int64),
        output_types=[tf.int32],
        output_shapes=[[]],
    )
    (element,) = tf.raw_ops.DatasetToSingleElement(
        dataset=sleeping, output_types=[tf.int32], output_shapes=[[]]
    )
    return element
