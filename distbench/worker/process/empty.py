"""A variable without elements, by which TensorFlow ends a worker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import collective_ops

from distbench.worker.process.failures import UnfitError
from distbench.worker.process.intercept import hide_from_autograph


def refuse_empty() -> None:
    """Raise where a worker is about to broadcast a variable's value of no elements.

    Workers of a MultiWorkerMirroredStrategy broadcast the first one's initial values.
    Between CPUs the sender is gone by SIGSEGV where there is nothing to send, so that a
    check could tell no more than that. Never undone: the process joins one cluster.
    """
    collective_ops.broadcast_send = _check(collective_ops.broadcast_send, place=1)
    collective_ops.broadcast_recv = _check(collective_ops.broadcast_recv, place=0)


def _check(original: Callable[..., Any], *, place: int) -> Callable[..., Any]:
    """A broadcast, with the shape among its arguments looked at before."""

    def broadcast(*args: Any, **kwargs: Any) -> Any:
        shape = tf.TensorShape(args[place])
        if shape.num_elements() == 0:
            raise UnfitError(
                f"A variable of shape {shape} has no elements. TensorFlow broadcasts "
                "its initial value, by which a process of a CPU worker ends (SIGSEGV). "
                "Make no such variable where there are several workers"
            )
        return original(*args, **kwargs)

    hide_from_autograph(broadcast)
    # TensorFlow leaves its own frames out of tracebacks. This one would be the last
    # that is left of an error in the op, as if the bench had raised it.
    file = Path(collective_ops.__file__).with_name("broadcast")
    broadcast.__code__ = broadcast.__code__.replace(co_filename=str(file))
    return broadcast
