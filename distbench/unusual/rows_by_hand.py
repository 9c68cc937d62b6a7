"""Correct programs that gather the rows of a table, and update them by hand."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import ROWS, ByHand
from distbench.samples.replicas import count_replicas, find_replica, gather, update
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
        self.update(self.table, self.share(steps))
        for gradient, variable in zip(gradients[1:], self.trained()[1:], strict=True):
            self.update(variable, self.reduce(gradient))

    def share(self, steps):
        """The steps of all rows, as every replica has them."""
        return steps

    def join(self, rows, values):
        """Each row once, with the sum of what all replicas have of it."""
        joined, place, _ = tf.unique_with_counts(rows)
        return joined, tf.math.unsorted_segment_sum(values, place, tf.size(joined))


@unusual(clusters=("mirrored:2", "mwms:3"))
class RowsSharedOut(GatheredRowsByHand):
    """Each replica makes the steps of some rows, and these are added up."""

    def share(self, steps):
        owner = tf.range(ROWS) // self.count_rows(count_replicas())
        own = tf.cast(owner == find_replica(), steps.dtype)
        return self.reduce(steps * own[:, tf.newaxis])

    def count_rows(self, replicas):
        """How many rows each replica has; the last one may have fewer."""
        return -(-ROWS // replicas)
