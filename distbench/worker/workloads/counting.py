"""A place for each step in every variable, which tells how often it was applied."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import tensorflow as tf

from distbench.worker.workloads.base import Array, Workload
from distbench.worker.workloads.formats import FORMATS

_TOP = 2
"""Largest integer among data and initial values."""
_SHIFT = 1
"""Initial values are integers times 2**-1."""
_COLUMNS = (1, 2)
"""By what each column of the ledger counts."""


class Counting(Workload):
    """A loss that is linear in the variables, of step s in their s-th elements alone.

    l_i = x_i · (tally + ledger · (1, 2)), where x_i is 0 but in column s. The gradient
    depends on no variable, and another element of it is not 0 in each step: whatever
    the order of the steps, and whatever each of them read, an element of the variables
    moves when its own step is applied, as far as a rule works element by element.
    """

    dyadic: ClassVar[bool] = True

    def data(self, step: int) -> tuple[Array, ...]:
        """The inputs x: [G, steps]."""
        inputs = np.zeros((self.examples, self.steps))
        inputs[:, step % self.steps] = self._draw_units(step)
        return (self._cast(inputs),)

    def build(self) -> None:
        """Make tally [steps] and ledger [steps, 2]."""
        tally, ledger = self._draw_initial()
        unit = 2.0**-_SHIFT
        self._tally = self._make_variable("tally", tally * unit)
        self._ledger = self._make_variable("ledger", ledger * unit)

    def compute_losses(self, batch: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """x_i · (tally + ledger · (1, 2)): [n]."""
        (inputs,) = batch
        weights = tf.constant(_COLUMNS, self.dtype)
        places = self._tally + tf.linalg.matvec(self._ledger, weights)
        return tf.linalg.matvec(inputs, places)

    def prove_exact(self, step: int, shards: tuple[int, ...]) -> bool:
        """Prove it in integers, as `Linear.prove_exact` does.

        The largest sum is that of the loss; that of a gradient has the same addends
        without the variables, which are at least one unit.
        """
        if sum(shards) != self.examples or self.examples & (self.examples - 1):
            return False
        tally, ledger = self._draw_initial()
        place = step % self.steps
        row = abs(int(tally[place])) + sum(
            weight * abs(int(value))
            for weight, value in zip(_COLUMNS, ledger[place], strict=True)
        )
        # A gradient of the ledger is counted in whole numbers, not in units.
        row = max(row, max(_COLUMNS) << _SHIFT)
        terms = row * sum(int(n) for n in self._draw_units(step))
        form = FORMATS[self.dtype.name]
        finest_shift = _SHIFT + self.examples.bit_length() - 1
        return terms < 2**form.significand_bits and -finest_shift >= form.min_exponent

    def _draw_units(self, step: int) -> Array:
        return self._make_rng(step).integers(1, _TOP + 1, self.examples)

    def _draw_initial(self) -> tuple[Array, Array]:
        rng = self._make_rng()
        shape = (self.steps, 1 + len(_COLUMNS))
        drawn = rng.integers(1, _TOP + 1, shape) * rng.choice([-1, 1], shape)
        return drawn[:, 0], drawn[:, 1:]
