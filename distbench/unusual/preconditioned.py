"""Sums that a step divides by what it makes of them first, before an optimizer."""

from __future__ import annotations

from distbench.samples.curvature import AlongSigns
from distbench.samples.lazy import tf
from distbench.samples.program import OwnReduction
from distbench.samples.replicas import all_reduce, update
from distbench.unusual.program import unusual


@unusual()
class DividedBySizes(OwnReduction):
    """Each element of the sum is divided by its absolute value and a small number."""

    def reduce(self, gradients):
        own = [tf.convert_to_tensor(gradient) for gradient in gradients]
        total = all_reduce("sum", own)
        pairs = zip(total, self.measure(own, total), strict=True)
        return [gradient / (size + 1e-3) for gradient, size in pairs]

    def measure(self, own, total):
        """The size of each element, by variable."""
        del own
        return [tf.abs(gradient) for gradient in total]


class _Kept(OwnReduction):
    """Keeps averages, by which the sum is divided in the same step."""

    def build(self, strategy):
        super().build(strategy)
        self.kept = [
            tf.Variable(tf.zeros(shape), trainable=False, name=f"kept{place}")
            for place, shape in enumerate(self.list_shapes())
        ]

    def variables(self):
        return [*self.trained(), *self.kept]

    def list_shapes(self):
        """Shapes of the averages."""
        return [variable.shape for variable in self.trained()]

    def keep(self, taken):
        """Move all averages, and return them."""
        for average, value in zip(self.kept, taken, strict=True):
            update(average, self.move, value)
        return [tf.identity(average) for average in self.kept]

    def move(self, copy, taken):
        """One copy's average."""
        copy.assign(0.9 * copy + 0.1 * taken)


@unusual()
class DividedByKeptSquares(_Kept):
    """An average takes squares of the sum, and its root divides the sum at once."""

    def reduce(self, gradients):
        own = [tf.convert_to_tensor(gradient) for gradient in gradients]
        total = all_reduce("sum", own)
        pairs = zip(total, self.keep(self.square(own, total)), strict=True)
        return [gradient / (tf.sqrt(average) + 0.1) for gradient, average in pairs]

    def square(self, own, total):
        """What the averages take, by variable."""
        del own
        return [gradient**2 for gradient in total]


@unusual()
class DividedByKeptNorm(_Kept):
    """An average takes the norm of all sums, which it divides at once."""

    def list_shapes(self):
        return [()]

    def reduce(self, gradients):
        own = [tf.convert_to_tensor(gradient) for gradient in gradients]
        total = all_reduce("sum", own)
        (average,) = self.keep([self.measure(own, total)])
        return [gradient / (1.0 + average) for gradient in total]

    def measure(self, own, total):
        """What the average takes."""
        del own
        return tf.linalg.global_norm(total)


@unusual()
class DividedByKeptCurvature(_Kept, AlongSigns):
    """An average takes the squares of the whole loss's curvature, as in AdaHessian."""

    def replica_step(self, batch):
        loss, own, curvatures = self.curve(batch)
        taken = self.take(curvatures)
        total = zip(all_reduce("sum", own), self.keep(taken), strict=True)
        handed = [gradient / (tf.sqrt(square) + 0.1) for gradient, square in total]
        self._optimizer.apply_gradients(
            zip(handed, self.trained(), strict=True),
            experimental_aggregate_gradients=False,
        )
        return loss

    def take(self, curvatures):
        """What the averages take of the replica's share of the curvature."""
        return [total**2 for total in all_reduce("sum", curvatures)]
