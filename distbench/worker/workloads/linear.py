"""Linear regression on dyadic numbers, whose gradients can be computed exactly."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import tensorflow as tf

from distbench.dyadic import GRIDS
from distbench.errors import BadInputError
from distbench.worker.workloads.base import Array, Workload
from distbench.worker.workloads.formats import FORMATS

_INPUTS = 3
_OUTPUTS = 2


class Linear(Workload):
    """y = xW + b with loss l_i = ½ ‖x_i W + b - t_i‖².

    Inputs, weights and targets are small integers times 2**-m. The residuals at the
    initial values are drawn first and the targets made to fit, so no sum is larger
    than it has to be. They are positive: the norm of the bias' gradient then stays
    above 1, where most optimizers' clipping begins, however large the batch. `data`
    has x: [G, 3] and t: [G, 2].
    """

    dyadic: ClassVar[bool] = True

    def __init__(self, *, examples: int, dtype: str, seed: int, steps: int = 3) -> None:
        super().__init__(examples=examples, dtype=dtype, seed=seed, steps=steps)
        if self.dtype.name not in GRIDS:
            raise BadInputError(
                "Workload 'linear' has no such dtype. Expected one of "
                f"{', '.join(GRIDS)}. Received: {self.dtype.name}."
            )
        self._grid = GRIDS[self.dtype.name]
        rng = self._make_rng()
        top = self._grid.weight_max
        self._kernel_units = rng.integers(-top, top + 1, (_INPUTS, _OUTPUTS))
        self._bias_units = _draw_nonzero(rng, top, (_OUTPUTS,))

    def data(self, step: int) -> tuple[Array, ...]:
        """The inputs x: [G, 3] and targets t: [G, 2]."""
        inputs, targets = self._draw_units(step)
        shift = self._grid.input_shift
        return (
            self._scale(inputs, shift),
            self._scale(targets, shift + self._grid.weight_shift),
        )

    def build(self) -> None:
        """Make kernel [3, 2] and bias [2]."""
        shift = self._grid.weight_shift
        self._kernel = self._make_variable(
            "kernel", self._scale(self._kernel_units, shift)
        )
        self._bias = self._make_variable("bias", self._scale(self._bias_units, shift))

    def compute_losses(self, batch: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """½ ‖x_i W + b - t_i‖²: [n]."""
        inputs, targets = batch
        residuals = tf.matmul(inputs, self._kernel) + self._bias - targets
        return 0.5 * tf.reduce_sum(tf.square(residuals), axis=-1)

    def prove_exact(self, step: int, shards: tuple[int, ...]) -> bool:
        """Prove it in integers.

        Each value below is an integer number of units 2**-k. With p significand bits
        every integer up to 2**p is representable, and no partial sum, whatever its
        order, exceeds Σ|terms|. So the computation is exact if each Σ|terms| < 2**p,
        if the unit of the smallest is a normal number, and if G is a power of two, so
        that dividing by it only moves the exponent. Nothing overflows: a unit is at
        most 1, and 2**p is below the largest number of each of the formats.
        """
        if sum(shards) != self.examples or self.examples & (self.examples - 1):
            return False
        terms, finest_shift = self._sum_terms(step)
        finest_shift += self.examples.bit_length() - 1
        form = FORMATS[self.dtype.name]
        return terms < 2**form.significand_bits and -finest_shift >= form.min_exponent

    def _sum_terms(self, step: int) -> tuple[int, int]:
        """The largest Σ|terms| in its own units, and k of the finest unit 2**-k."""
        grid = self._grid
        x = [[int(n) for n in row] for row in self._draw_units(step)[0]]
        t = [[int(n) for n in row] for row in self._draw_units(step)[1]]
        w = [[int(n) for n in row] for row in self._kernel_units]
        # The bias has the weights' unit; beside x·W it is counted in x·W's.
        b = [int(n) << grid.input_shift for n in self._bias_units]
        columns = range(_OUTPUTS)
        residual = [
            [
                sum(p * w[k][j] for k, p in enumerate(row)) + b[j] - t[i][j]
                for j in columns
            ]
            for i, row in enumerate(x)
        ]
        forward = max(
            sum(abs(p * w[k][j]) for k, p in enumerate(row)) + abs(b[j]) + abs(t[i][j])
            for i, row in enumerate(x)
            for j in columns
        )
        loss = sum(e * e for row in residual for e in row)
        kernel = max(
            sum(abs(row[k] * residual[i][j]) for i, row in enumerate(x))
            for k in range(_INPUTS)
            for j in columns
        )
        bias = max(sum(abs(row[j]) for row in residual) for j in columns)
        output_shift = grid.input_shift + grid.weight_shift
        # The half of the loss; the kernel's gradient has unit x · residual.
        finest = max(2 * output_shift + 1, output_shift + grid.input_shift)
        return max(forward, loss, kernel, bias), finest

    def _draw_units(self, step: int) -> tuple[Array, Array]:
        grid = self._grid
        rng = self._make_rng(step)
        x = _draw_nonzero(rng, grid.input_max, (self.examples, _INPUTS))
        residual = rng.integers(1, grid.residual_max + 1, (self.examples, _OUTPUTS))
        bias = self._bias_units << grid.input_shift
        return x, x @ self._kernel_units + bias - residual

    def _scale(self, units: Array, shift: int) -> Array:
        return self._cast(np.ldexp(units.astype(np.float64), -shift))


def _draw_nonzero(rng: np.random.Generator, top: int, shape: tuple[int, ...]) -> Array:
    """Integers from -top to top without 0, which would hide a lost term."""
    return rng.integers(1, top + 1, shape) * rng.choice([-1, 1], shape)
