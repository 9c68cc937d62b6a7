"""Steps that run as Python does, one op after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf


@contextmanager
def run_op_by_op() -> Iterator[None]:
    """Inside, no function is traced or compiled: nothing joins an op with another."""
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)
