"""A multilayer perceptron on UCI's handwritten digits."""

from __future__ import annotations

import itertools

import numpy as np
import tensorflow as tf

from distbench.digits import draw_digits, load_digits
from distbench.worker.workloads.base import Array, Workload

_WIDTHS = (64, 32, 16, 10)


class Mlp(Workload):
    """Two hidden layers and softmax cross entropy on 8-by-8 images of digits.

    `data` has images: [G, 64] from -1 to 1 and labels: int32 [G]. The 1,797 images are
    shuffled once, and the steps walk through them. Units saturate instead of dying and
    the background is -1, not 0: a gradient that is 0 anyway would hide a lost one.
    """

    def __init__(self, *, examples: int, dtype: str, seed: int, steps: int = 3) -> None:
        super().__init__(examples=examples, dtype=dtype, seed=seed, steps=steps)
        load_digits()  # they may not be installed, which is no fault of a step

    def data(self, step: int) -> tuple[Array, ...]:
        """The images: [G, 64] and labels: int32 [G] of a step."""
        rows = draw_digits(self.seed, step * self.examples, self.examples)
        # Grey levels go from 0 to 16.
        return self._cast(rows[:, :-1] / 8 - 1), rows[:, -1].astype(np.int32)

    def build(self) -> None:
        """Make a kernel and a bias for each of three layers."""
        rng = self._make_rng()
        self._layers = []
        for number, (rows, columns) in enumerate(itertools.pairwise(_WIDTHS)):
            scale = np.sqrt(
                1.0 / rows
            )  # LeCun et al. 1998: keeps tanh out of saturation
            kernel = rng.normal(scale=scale, size=(rows, columns))
            bias = rng.normal(scale=0.1, size=columns)
            self._layers.append(
                (
                    self._make_variable(f"dense_{number}/kernel", kernel),
                    self._make_variable(f"dense_{number}/bias", bias),
                )
            )

    def compute_losses(self, batch: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """The cross entropy of each image: [n]."""
        images, labels = batch
        hidden = images
        for kernel, bias in self._layers[:-1]:
            hidden = tf.tanh(tf.matmul(hidden, kernel) + bias)
        kernel, bias = self._layers[-1]
        logits = tf.matmul(hidden, kernel) + bias
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
