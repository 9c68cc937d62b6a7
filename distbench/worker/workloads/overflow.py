"""Linear regression with an example whose gradient no dtype can hold."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from distbench.worker.workloads.base import Array
from distbench.worker.workloads.linear import Linear

_STEP = 1


class Overflow(Linear):
    """The last example of the second step has no finite gradient, nor loss.

    It lies in the last replica's shard. One device has it in its only gradient, so a
    loss scale skips the step there; on a cluster all replicas have to.
    """

    dyadic: ClassVar[bool] = False

    def data(self, step: int) -> tuple[Array, ...]:
        """The inputs x: [G, 3] and targets t: [G, 2]."""
        inputs, targets = super().data(step)
        if step == _STEP:
            targets = targets.copy()
            targets[-1] = np.inf
        return inputs, targets
