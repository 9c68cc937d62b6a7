"""A multilayer perceptron on UCI's handwritten digits."""

from __future__ import annotations

import functools
import importlib.util
import itertools
from pathlib import Path
from typing import ClassVar

import numpy as np
import tensorflow as tf

from distbench.errors import BadInputError
from distbench.worker.workloads.base import Array, Workload

_WIDTHS = (64, 32, 16, 10)


class Mlp(Workload):
    """Two hidden layers and softmax cross entropy on 8-by-8 images of digits.

    `data` has images: [G, 64] from -1 to 1 and labels: int32 [G]. The 1,797 images are
    shuffled once, and the steps walk through them. Units saturate instead of dying and
    the background is -1, not 0: a gradient that is 0 anyway would hide a lost one.
    """

    name: ClassVar[str] = "mlp"

    def __init__(self, *, examples: int, dtype: str, seed: int, steps: int = 3) -> None:
        super().__init__(examples=examples, dtype=dtype, seed=seed, steps=steps)
        self._images, self._labels = load_digits()
        self._order = self._make_rng().permutation(len(self._labels))

    def data(self, step: int) -> tuple[Array, ...]:
        """The images: [G, 64] and labels: int32 [G] of a step."""
        first = step * self.examples
        wanted = np.arange(first, first + self.examples) % len(self._order)
        rows = self._order[wanted]
        return self._cast(self._images[rows]), self._labels[rows]

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


@functools.cache
def load_digits() -> tuple[Array, Array]:
    """UCI's handwritten digits: images float64 [1797, 64] and labels int32 [1797].

    Reads the file that scikit-learn packages (E. Alpaydin, C. Kaynak, "Optical
    Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998; see
    `sklearn.datasets.load_digits`) without importing scikit-learn, which would take
    a second in each task of each cluster.

    Raises:
        BadInputError: scikit-learn is not installed.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise BadInputError(
            "Workload 'mlp' takes its data from scikit-learn, which is not installed. "
            "Run `pip install distbench[scenarios]`, or choose another --workload."
        )
    path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(path, delimiter=",")
    # Grey levels go from 0 to 16.
    return table[:, :-1] / 8 - 1, table[:, -1].astype(np.int32)
