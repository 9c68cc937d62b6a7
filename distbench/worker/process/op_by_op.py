"""Steps that run as Python does, one op after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from distbench.errors import BadInputError


@contextmanager
def run_op_by_op() -> Iterator[None]:
    """Inside, no function is traced or compiled: nothing joins an op with another."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


@contextmanager
def keep_traced(name: str) -> Iterator[None]:
    """Inside, the user's code leaves it to the bench which steps run op by op.

    Args:
        name: Of the target, for the message.

    Raises:
        BadInputError: It does not.
    """
    before = tf.config.functions_run_eagerly()
    yield
    if tf.config.functions_run_eagerly() and not before:
        tf.config.run_functions_eagerly(before)
        raise BadInputError(
            f"Target '{name}' has all functions run op by op "
            "(tf.config.run_functions_eagerly). Expected: steps that are traced, which "
            "is what trains on a cluster. Leave that call out; 'distbench debug' shows "
            "a step op by op."
        )
