"""The global batches of a train program: the same in every process, or refused.

The reference and the cluster run in different processes. Where their data differ, so do
their numbers, and nothing that follows would say anything of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, cast

import numpy as np
import tensorflow as tf

from distbench.errors import BadInputError
from distbench.trace import Trace
from distbench.worker.stepping.misfits import describe_odd_array
from distbench.worker.stepping.program import Program, count_batch, make_arrays


class Batches:
    """Asks for each batch once, since a generator would go on to the next.

    Args:
        draw: The user's `data`.
        name: What the user calls the program.
    """

    def __init__(self, draw: Callable[[int], Any], name: str) -> None:
        self._draw = draw
        self._name = name
        self._drawn: dict[int, Any] = {}

    def get(self, step: int) -> Any:
        """The batch of a step: a nest of NumPy arrays.

        Raises:
            BadInputError: It holds other things than arrays, or no example.
        """
        if step not in self._drawn:
            # A GPU may round otherwise than the CPU of the reference.
            with tf.device("/cpu:0"):
                batch = self._draw(step)
            source = f"data({step}) of '{self._name}'"
            if not count_batch(batch, source):
                raise BadInputError(
                    f"{source} must return at least one example. "
                    "Received: arrays without any. Ask for fewer steps, or give it "
                    "more examples."
                )
            arrays = make_arrays(batch)
            if odd := describe_odd_array(arrays):
                raise BadInputError(
                    f"{source} must return arrays of numbers or text, of a dtype that "
                    f"TensorFlow has. Received: {odd}. Convert it: "
                    "values.astype('float32')."
                )
            self._drawn[step] = arrays
        return self._drawn[step]


def digest_batch(batch: Any) -> str:
    """A text that tells batches apart: equal for equal arrays, in any process."""
    digest = sha256()
    for array in map(np.asarray, tf.nest.flatten(batch)):
        # Elements that are Python objects have no bytes but their address.
        content = repr(array.tolist()).encode() if array.dtype.hasobject else b""
        digest.update(f"{array.dtype} {array.shape} ".encode())
        digest.update(content or array.tobytes())
    return digest.hexdigest()


def check_batches(program: Program, reference: Trace) -> None:
    """Compare the batches of this process with those of the reference.

    Args:
        program: The program whose batches are compared.
        reference: The single-device run; its notes have the digest of each batch.

    Raises:
        BadInputError: A step has another batch; it names the step.
    """
    digests = cast(list[str], reference.notes["batches"])
    for step, digest in enumerate(digests):
        if digest_batch(program.data(step)) != digest:
            raise BadInputError(
                f"data({step}) of '{program.name}' must return the same batch in every "
                "process. Received other values than on one device. Seed the "
                "generator with the step: np.random.default_rng(step)."
            )
