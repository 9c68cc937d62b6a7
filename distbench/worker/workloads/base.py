"""What a workload brings: a model, its data and the loss of each example.

A workload never reduces over examples: the program that trains it divides by the
global batch and sums over replicas, so that division is in one place.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

Array = npt.NDArray[Any]
"""An array of any dtype; TensorFlow's bfloat16 has no NumPy scalar type."""


class Workload(abc.ABC):
    """Model, data and loss for a subject that is only an optimizer.

    Every replica's data differs whatever the split, every step has another batch, and
    both depend on nothing but `examples`, `dtype`, `seed` and the step number.

    Attributes:
        dyadic: Whether the exact tier is possible (see `prove_exact`).
        examples: Size of the global batch, G.
        dtype: Dtype of variables, floating-point data and losses.
        seed: Seed of data and initial values.
        steps: Number of steps that are run in all.
    """

    dyadic: ClassVar[bool] = False

    def __init__(self, *, examples: int, dtype: str, seed: int, steps: int = 3) -> None:
        self.examples = examples
        self.steps = steps
        self.dtype = tf.as_dtype(dtype)
        self.seed = seed
        self._variables: list[tf.Variable] = []

    @abc.abstractmethod
    def data(self, step: int) -> tuple[Array, ...]:
        """The global batch of a step: arrays whose first axis has `examples`."""

    @abc.abstractmethod
    def build(self) -> None:
        """Make the variables. Called once, under the strategy's scope."""

    @abc.abstractmethod
    def compute_losses(self, batch: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """The loss of each example in a (part of a) batch: [n], not divided."""

    def compute_penalty(self) -> tf.Tensor | None:
        """The regularisation R, a scalar that is not divided by the replicas."""
        return None

    def prove_exact(self, step: int, shards: tuple[int, ...]) -> bool:  # noqa: ARG002  # the default proves nothing
        """Whether the loss and gradients of a step suffer no rounding at all.

        Proven for the initial values of the variables, for local losses and gradients
        of the given shards with respect to the sum of l_i / G, and for every partial
        sum of them over examples and replicas, in any order.

        Args:
            step: Step number.
            shards: Examples of each replica.
        """
        return False

    def variables(self) -> list[tf.Variable]:
        """The variables in the order in which they were made.

        Under a parameter server strategy that partitions they can be sharded ones.
        """
        return list(self._variables)

    def _make_variable(self, name: str, initial: Array, **options: Any) -> tf.Variable:
        variable = tf.Variable(self._cast(initial), name=name, **options)
        self._variables.append(variable)
        return variable

    def _make_rng(self, step: int = -1) -> np.random.Generator:
        """A generator for the data of a step, or for the initial values."""
        return np.random.default_rng((self.seed, step + 1))

    def _draw_normal(self, step: int, *widths: int) -> tuple[Array, ...]:
        """Arrays of normal numbers for a step, each [G, width]."""
        rng = self._make_rng(step)
        return tuple(
            self._cast(rng.normal(size=(self.examples, width))) for width in widths
        )

    def _cast(self, array: Array) -> Array:
        return array.astype(self.dtype.as_numpy_dtype)
