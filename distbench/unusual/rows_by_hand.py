"""Correct programs that gather the rows of a table, and update them by hand."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import ByHand
from distbench.samples.replicas import gather, update
from distbench.samples.slices import add_up_rows
from distbench.unusual.program import unusual


@unusual(clusters=("mirrored:2", "mwms:3"))
class GatheredRowsByHand(ByHand):
    """Each replica adds up its rows; Adagrad by hand takes the sum of all of them."""

    def build(self, strategy):
        super().build(strategy)
        self.squares = tf.Variable(
            tf.fill(self.table.shape, tf.constant(0.1, self.dtype)),
            trainable=False,
            name="squares",
        )

    def variables(self):
        return [*self.trained(), self.squares]

    def apply(self, gradients):
        own = add_up_rows(gradients[0])
        rows, values = self.join(gather(own.indices), gather(own.values))
        squares = tf.gather(self.squares, rows) + values**2
        places = rows[:, tf.newaxis]
        new = tf.tensor_scatter_nd_update(self.squares.read_value(), places, squares)
        steps = tf.scatter_nd(places, values / tf.sqrt(squares), self.table.shape)
        update(self.squares, lambda copy, value: copy.assign(value), new)
        self.update(self.table, steps)
        for gradient, variable in zip(gradients[1:], self.trained()[1:], strict=True):
            self.update(variable, self.reduce(gradient))

    def join(self, rows, values):
        """Each row once, with the sum of what all replicas have of it."""
        joined, place, _ = tf.unique_with_counts(rows)
        return joined, tf.math.unsorted_segment_sum(values, place, tf.size(joined))
