"""A variable with a constraint beside one that gets no gradient."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from distbench.worker.workloads.base import Array, Workload

_INPUTS = 6
_OUTPUTS = 3


class Constrained(Workload):
    """y = xW + b with W ≥ 0, and a trainable variable that the loss does not use.

    A third of W starts at exactly 0, so the constraint acts in the first step already
    whatever the optimizer's step size. The unused variable lies between the others, so
    that a gradient list without its None is paired with the wrong variables. `data`
    has x: [G, 6] and targets: [G, 3].
    """

    def data(self, step: int) -> tuple[Array, ...]:
        """The inputs: [G, 6] and targets: [G, 3]."""
        return self._draw_normal(step, _INPUTS, _OUTPUTS)

    def build(self) -> None:
        """Make the kernel [6, 3], an unused variable [3] and the bias [3]."""
        rng = self._make_rng()
        kernel = rng.uniform(0.2, 1.0, size=(_INPUTS, _OUTPUTS))
        kernel[::3] = 0.0
        self._kernel = self._make_variable("kernel", kernel, constraint=tf.nn.relu)
        self._make_variable("unused", np.ones(_OUTPUTS))
        self._bias = self._make_variable("bias", rng.normal(size=_OUTPUTS))

    def compute_losses(self, batch: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """Half the squared error of each example: [n]."""
        inputs, targets = batch
        residuals = tf.matmul(inputs, self._kernel) + self._bias - targets
        return 0.5 * tf.reduce_sum(tf.square(residuals), axis=-1)
