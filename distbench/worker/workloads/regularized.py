"""A dense model with an L2 penalty, which every replica computes in full."""

from __future__ import annotations

import tensorflow as tf

from distbench.worker.workloads.base import Array, Workload

_INPUTS = 6
_HIDDEN = 5
_OUTPUTS = 2
# Large enough that the penalty's gradient is of the size of the data's: a replica
# that forgets to divide it by N is then wrong in the first digit.
_STRENGTH = 0.25


class Regularized(Workload):
    """tanh(xV)·W + b with squared error and R = ¼ · ½ (‖V‖² + ‖W‖²).

    The bias is not regularised. `data` has x: [G, 6] and targets: [G, 2].
    """

    def data(self, step: int) -> tuple[Array, ...]:
        """The inputs: [G, 6] and targets: [G, 2]."""
        return self._draw_normal(step, _INPUTS, _OUTPUTS)

    def build(self) -> None:
        """Make the kernels [6, 5] and [5, 2] and the bias [2]."""
        rng = self._make_rng()
        self._hidden = self._make_variable(
            "hidden/kernel", rng.normal(scale=0.5, size=(_INPUTS, _HIDDEN))
        )
        self._kernel = self._make_variable(
            "output/kernel", rng.normal(scale=0.5, size=(_HIDDEN, _OUTPUTS))
        )
        self._bias = self._make_variable("output/bias", rng.normal(size=_OUTPUTS))

    def compute_losses(self, batch: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """Half the squared error of each example: [n]."""
        inputs, targets = batch
        hidden = tf.tanh(tf.matmul(inputs, self._hidden))
        residuals = tf.matmul(hidden, self._kernel) + self._bias - targets
        return 0.5 * tf.reduce_sum(tf.square(residuals), axis=-1)

    def compute_penalty(self) -> tf.Tensor:
        """R: a scalar."""
        # Converted first, since a sharded variable has no L2 loss of its own.
        kernels = (
            tf.convert_to_tensor(self._hidden),
            tf.convert_to_tensor(self._kernel),
        )
        return _STRENGTH * tf.add_n([tf.nn.l2_loss(kernel) for kernel in kernels])
