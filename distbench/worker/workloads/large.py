"""A layer that is larger than what aggregators treat as small, and twins in shape."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from distbench.worker.workloads.base import Array, Workload

# 262,143 elements. Neither side nor their product is a multiple of a power of two: a
# chunk, a block or a bucket is left over.
_INPUTS = 513
_HIDDEN = 511
_OUTPUTS = 3


class Large(Workload):
    """tanh(g·xV + c)·W + b with squared error, and a V of about a mebibyte in float32.

    What packs gradients into buckets, compresses them or sends them in parts commonly
    does so above a size, and leaves biases alone: both are here. What sorts gradients
    by their shapes has to tell those of g and c apart. `data` has x: [G, 513] and
    targets: [G, 3].
    """

    def data(self, step: int) -> tuple[Array, ...]:
        """The inputs: [G, 513] and targets: [G, 3]."""
        return self._draw_normal(step, _INPUTS, _OUTPUTS)

    def build(self) -> None:
        """Make kernels [513, 511] and [511, 3], a gain [511], biases [511] and [3]."""
        rng = self._make_rng()
        hidden, output = (np.sqrt(1.0 / rows) for rows in (_INPUTS, _HIDDEN))
        self._hidden = self._make_variable(
            "hidden/kernel", rng.normal(scale=hidden, size=(_INPUTS, _HIDDEN))
        )
        self._gain = self._make_variable(
            "hidden/gain", rng.normal(loc=1.0, scale=0.1, size=_HIDDEN)
        )
        self._hidden_bias = self._make_variable(
            "hidden/bias", rng.normal(scale=0.1, size=_HIDDEN)
        )
        self._kernel = self._make_variable(
            "output/kernel", rng.normal(scale=output, size=(_HIDDEN, _OUTPUTS))
        )
        self._bias = self._make_variable("output/bias", rng.normal(size=_OUTPUTS))

    def compute_losses(self, batch: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """Half the squared error of each example: [n]."""
        inputs, targets = batch
        scaled = self._gain * tf.matmul(inputs, self._hidden)
        hidden = tf.tanh(scaled + self._hidden_bias)
        residuals = tf.matmul(hidden, self._kernel) + self._bias - targets
        return 0.5 * tf.reduce_sum(tf.square(residuals), axis=-1)
