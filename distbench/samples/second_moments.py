"""Rules that keep less of a gradient's squares than one for each element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distbench.samples.lazy import tf
from distbench.samples.optimizers import OwnRule


class KeptSquares(OwnRule):
    """A step along the gradient by the root of some average of its squares."""

    def create_slots(self, variable: Any) -> None:
        """Make the averages of a variable."""
        for name, taken in self.list_squares(tf.zeros(variable.shape)):
            self.add_slot(variable, name, shape=taken.shape)  # type: ignore[attr-defined]

    def _resource_apply_dense(
        self, grad: Any, var: Any, apply_state: Any = None
    ) -> Any:
        del apply_state
        self.update_slots(grad, var)
        return var.assign_sub(self.rate * grad / (self.find_root(var) + 0.1))

    def update_slots(self, grad: Any, var: Any) -> None:
        """Change the averages of one copy."""
        for name, taken in self.list_squares(grad):
            self.feed(self.get_slot(var, name), taken)  # type: ignore[attr-defined]

    def list_squares(self, gradient: Any) -> Iterator[tuple[str, Any]]:
        """What each average takes, by its name."""
        raise NotImplementedError

    def feed(self, slot: Any, taken: Any) -> None:
        """Change one copy of an average."""
        raise NotImplementedError

    def find_root(self, variable: Any) -> Any:
        """By what a gradient is divided."""
        raise NotImplementedError


class FactoredMoments(KeptSquares):
    """Averages of rows and columns, which forget less from step to step: Adafactor.

    Attributes:
        exponent: That of the number of a step, for the share of what is new.
    """

    exponent = -0.8

    def list_squares(self, gradient: Any) -> Iterator[tuple[str, Any]]:
        """Means over columns and over rows of a matrix."""
        squares = gradient**2
        if len(gradient.shape) == 2:
            yield "row", tf.reduce_mean(squares, axis=1)
            yield "column", tf.reduce_mean(squares, axis=0)
        else:
            yield "full", squares

    def feed(self, slot: Any, taken: Any) -> None:
        """Change one copy of an average."""
        step = tf.cast(self.iterations + 1, tf.float32)  # type: ignore[attr-defined]
        share = tf.pow(step, self.exponent)
        slot.assign((1 - share) * slot + share * taken)

    def find_root(self, variable: Any) -> Any:
        """The root of what rows and columns make of each element."""
        names = ("row", "column") if len(variable.shape) == 2 else ("full",)
        row, *columns = [self.get_slot(variable, name) for name in names]  # type: ignore[attr-defined]
        if not columns:
            return tf.sqrt(row)
        outer = row[:, None] * columns[0][None, :]
        return tf.sqrt(outer / (tf.reduce_mean(row) + 1e-6))


class NormOfLayer(KeptSquares):
    """One average for each variable, which starts as the first square: NovoGrad."""

    def list_squares(self, gradient: Any) -> Iterator[tuple[str, Any]]:
        """The square of the norm."""
        yield "size", tf.reduce_sum(gradient**2)

    def feed(self, slot: Any, taken: Any) -> None:
        """Change one copy of an average."""
        is_first = tf.equal(self.iterations, 0)  # type: ignore[attr-defined]
        slot.assign(tf.where(is_first, taken, 0.75 * slot + 0.25 * taken))

    def find_root(self, variable: Any) -> Any:
        """The root of that average."""
        return tf.sqrt(self.get_slot(variable, "size"))  # type: ignore[attr-defined]
