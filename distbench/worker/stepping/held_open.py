"""Has a race between steps in flight show, if there can be one.

Between the reading of a variable and the assignment of what came of it another step may
write, and so it may between the writing of a slot and its reading for the variable.
That lasts for microseconds, and whether it happens is chance. No order is promised, so
the second of the two may as well come later, and then what others wrote is lost or
taken twice for certain.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_callbacks
from tensorflow.python.ops.control_flow_v2_func_graphs import (
    WhileBodyFuncGraph,
    WhileCondFuncGraph,
)

from distbench.worker.state.torn import UpdatesInParts
from distbench.worker.state.variables import VariableTable

_LOOPS = (WhileBodyFuncGraph, WhileCondFuncGraph)
HELD_S = 0.05
"""How long an op waits: longer than a step of small models takes."""
_MOST = 64
"""So many ops of a step wait: each has a thread of its own, and one shows a race."""


@contextmanager
def hold_open(table: VariableTable) -> Iterator[None]:
    """Have the second half of each update in two parts wait a while.

    What is traced within has it, in the bodies of functions and conditions as well.
    What a loop does waits for nothing, as it would wait each time.

    Args:
        table: The subject's variables.
    """
    parts = UpdatesInParts(table)
    wait = tf.function(_sleep, autograph=False).get_concrete_function()
    held = 0

    def see(
        _type: Any, _inputs: Any, _attrs: Any, outputs: Any, op_name: str, graph: Any
    ) -> None:
        nonlocal held
        if graph is None or held >= _MOST or isinstance(graph, _LOOPS):
            return
        # A constant comes under another name than its op has.
        op = outputs[0].op if outputs else graph.get_operation_by_name(op_name)
        since = parts.find_first(op)
        if since is None:
            return
        wait.add_to_graph(graph)
        with graph.as_default(), tf.control_dependencies([since]):
            # Ops with side effects run in the order in which they were made. So would
            # the waits, and after all that the step prints and asserts, which may come
            # after what waits. A call that says to have none has no place in it.
            (ended,) = tf.raw_ops.PartitionedCall(args=[], Tout=[tf.int32], f=wait)
        op._add_control_input(ended.op)
        held += 1

    op_callbacks.add_op_callback(see)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(see)


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
