"""Correct steps that keep sums of gradients in variables of the program."""

from __future__ import annotations

from distbench.samples.collecting import make_own
from distbench.samples.lazy import tf
from distbench.samples.program import ByHand, MomentumByHand, OwnReduction
from distbench.samples.replicas import all_reduce, count_replicas, make_zeros, update
from distbench.unusual.program import unusual


@unusual()
class CollectedBySums(OwnReduction):
    """What every replica assigns is added up, and handed to the optimizer."""

    aggregation = "SUM"

    def build(self, strategy):
        super().build(strategy)
        self.collected = make_zeros(self.trained(), "collected", self.aggregation)

    def variables(self):
        return [*self.trained(), *self.collected]

    def reduce(self, gradients):
        for variable, gradient in zip(self.collected, gradients, strict=True):
            variable.assign(tf.convert_to_tensor(gradient))
        return [tf.identity(variable) for variable in self.collected]


@unusual()
class CollectedForTwoSteps(CollectedBySums):
    """Accumulators take the sums of two steps, and are cleared once these count."""

    def build(self, strategy):
        super().build(strategy)
        self.taken = _make_counter()

    def variables(self):
        return [*super().variables(), self.taken]

    def reduce(self, gradients):
        self.taken.assign_add(1)
        is_due = self.taken % 2 == 0
        handed = []
        for variable, gradient in zip(self.collected, gradients, strict=True):
            # What is assigned is added up, so each gives a share of what is kept.
            kept = variable / count_replicas()
            variable.assign(kept + tf.convert_to_tensor(gradient))
            total = tf.identity(variable)
            handed.append(tf.where(is_due, total, tf.zeros_like(total)))
            left = tf.where(self.clears(is_due), tf.zeros_like(total), total)
            variable.assign(left / count_replicas())
        return handed

    def clears(self, is_due):
        """Whether the accumulators are cleared."""
        return is_due


@unusual()
class AppliedEverySecondStep(ByHand):
    """Sums are kept in variables, and every second step descends by both of them."""

    def build(self, strategy):
        super().build(strategy)
        mean = tf.VariableAggregation.MEAN
        self.taken = tf.Variable(0.0, name="taken", trainable=False, aggregation=mean)
        self.kept = make_zeros(self.trained(), "kept", "MEAN")

    def variables(self):
        return [*self.trained(), *self.kept, self.taken]

    def apply(self, gradients):
        self.taken.assign(self.taken + 1)
        is_due = tf.cast(tf.equal(self.taken % 2, 0), tf.float32)
        trained = zip(gradients, self.trained(), self.kept, strict=True)
        for gradient, variable, kept in trained:
            total = kept + self.reduce(tf.convert_to_tensor(gradient))
            variable.assign(variable - self.rate * is_due * total)
            kept.assign((1 - is_due) * total)


@unusual()
class SentInRankOne(OwnReduction):
    """Of kernels' sums one column and one row are sent; the row is kept (PowerSGD)."""

    def build(self, strategy):
        super().build(strategy)
        self.rows = [
            tf.Variable(
                tf.linspace(-1.0, 1.0, variable.shape[1]),
                name=f"row{place}",
                trainable=False,
            )
            for place, variable in enumerate(self.list_kernels())
        ]

    def list_kernels(self):
        """What is sent so."""
        return [self.first, self.second, self.head]

    def variables(self):
        return [*self.trained(), *self.rows]

    def reduce(self, gradients):
        total = list(super().reduce(gradients))
        for row, variable in zip(self.rows, self.list_kernels(), strict=True):
            place = next(i for i, v in enumerate(self.trained()) if v is variable)
            own = tf.convert_to_tensor(gradients[place])
            column = all_reduce("sum", tf.linalg.matvec(own, tf.identity(row)))
            column /= tf.norm(column) + 1e-6
            made = self.join(tf.linalg.matvec(own, column, transpose_a=True))
            update(row, lambda copy, value: copy.assign(value), made)
            total[place] = tf.tensordot(column, made, 0)
        return total

    def join(self, row):
        """The row of the sum, of each replica's."""
        return all_reduce("sum", row)


@unusual(clusters=("mirrored:3", "mwms:2"))
class CollectedAloneByHand(MomentumByHand):
    """Each replica collects two steps' gradients; a momentum by hand takes the sum."""

    def build(self, strategy):
        super().build(strategy)
        self.own = [make_own(v, place) for place, v in enumerate(self.trained())]
        self.taken = _make_counter()

    def apply(self, gradients):
        self.taken.assign_add(1)
        super().apply(gradients)

    def take(self, place, gradient):
        own, is_due = self.own[place], self.taken % 2 == 0
        collected = own.read_value() + tf.convert_to_tensor(gradient)
        own.assign(tf.where(is_due, 0.0, collected))
        super().take(place, tf.where(is_due, self.prepare(collected), 0.0))

    def prepare(self, collected):
        """What becomes of a replica's own part before it is summed."""
        return collected


def _make_counter():
    """Counts steps: all replicas add the same."""
    first = tf.VariableAggregation.ONLY_FIRST_REPLICA
    return tf.Variable(0, name="taken", trainable=False, aggregation=first)
