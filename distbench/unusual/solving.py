"""Correct steps that solve with a matrix of the whole batch, or of all gradients."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import OUTPUTS, OwnReduction
from distbench.samples.replicas import all_reduce, update
from distbench.unusual.program import unusual


class _Solving(OwnReduction):
    """A program that looks at what its last layer is given."""

    def activate(self, batch):
        """What the last layer is given: [n, hidden]."""
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        return tf.tanh(embedded @ self.first + features @ self.second + self.bias)

    def solve(self, matrix, right):
        """What a damped matrix takes to a right-hand side."""
        return tf.linalg.solve(matrix + 0.1 * tf.eye(matrix.shape[0]), right)


@unusual()
class SolvesWithMoments(_Solving):
    """Second moments of all inputs of the last layer divide its sum, as in K-FAC."""

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
        gradients = tape.gradient(loss, self.trained())
        divided = self.divide(gradients, self.activate(batch))
        self._optimizer.apply_gradients(
            zip(divided, self.trained(), strict=True),
            experimental_aggregate_gradients=False,
        )
        return loss

    def divide(self, gradients, given):
        """The sums of all gradients, that of the last layer divided."""
        *others, head = self.reduce(gradients)
        moments = all_reduce("sum", tf.matmul(given, given, transpose_a=True))
        return [*others, self.solve(moments / self.examples, head)]


@unusual()
class SolvesNormalEquations(_Solving):
    """The last layer takes half of the step to the least squares of all examples."""

    def make_optimizer(self):
        return None

    def replica_step(self, batch):
        given = self.activate(batch)
        rest = tf.reshape(given @ self.head - batch[2], [-1, OUTPUTS])
        matrix = tf.matmul(given, given, transpose_a=True) / self.examples
        right = tf.matmul(given, rest, transpose_a=True) / self.examples
        update(self.head, self.move, self.find_step(matrix, right))
        return tf.reduce_sum(rest**2) / self.examples

    def find_step(self, matrix, right):
        """The solution, of the replica's shares of both sides."""
        return self.solve(*all_reduce("sum", [matrix, right]))

    def move(self, copy, step):
        """One copy's step."""
        copy.assign_sub(0.5 * step)


@unusual()
class SolvesWithProducts(_Solving):
    """The products of a matrix' summed rows divide that sum, as in Shampoo."""

    def reduce(self, gradients):
        own = [tf.convert_to_tensor(gradient) for gradient in gradients]
        total = super().reduce(own)
        pairs = zip(total, self.multiply(own, total), strict=True)
        return [g if p is None else self.solve(p, g) for g, p in pairs]

    def multiply(self, own, total):
        """The products of the rows, of each variable that has some."""
        del own
        return [self.square(gradient) for gradient in total]

    def square(self, gradient):
        """The products of a gradient's rows, if it is a matrix."""
        if gradient.shape.rank < 2:
            return None
        return tf.matmul(gradient, gradient, transpose_b=True)
