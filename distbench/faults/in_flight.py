"""Programs with mistakes that many steps in flight show, or a worker's own memory."""

from __future__ import annotations

from functools import partial

from distbench.faults.fault import fault
from distbench.samples.lazy import legacy, tf
from distbench.samples.program import TABLE, TRAINED, Program
from distbench.samples.servers import OwnNumber, is_served, linger
from distbench.samples.slices import add_up_rows
from distbench.unusual.servers import MomentumByOneOpInFlight

_SERVED = ("ps:2+1",)
_flown = partial(fault, clusters=_SERVED, in_flight=4)


class Descending(Program):
    """A program whose rule adds to the variables, and keeps nothing else."""

    def make_optimizer(self):
        return legacy.SGD(0.02)


@_flown(
    "lost-update",
    "variable",
    TRAINED,
    like="keras-team/keras#18668",
)
class AssignedByHand(Descending):
    """The step assigns what it read before it computed its gradient, minus that."""

    def make_optimizer(self):
        return None

    def apply(self, gradients):
        for gradient, variable in zip(gradients, self.trained(), strict=True):
            before = linger(tf.identity(variable))
            variable.assign(before - 0.02 * tf.convert_to_tensor(gradient))


@_flown(
    "scale-error",
    "variable",
    TRAINED,
    like="tensorflow/tensorflow#55321",
)
class DividedByWorkers(Descending):
    """The loss is divided by the number of workers, and each step is applied alone."""

    def reduce_losses(self, losses, batch):
        workers = 2 if is_served() else 1
        return super().reduce_losses(losses, batch) / workers


@_flown(
    "lost-update",
    "variable",
    (TABLE,),
    like="keras-team/keras#18668",
)
class RowsWrittenBack(Descending):
    """The rows of a batch are gathered, changed and scattered back."""

    def make_optimizer(self):
        return None

    def apply(self, gradients):
        for gradient, variable in zip(gradients, self.trained(), strict=True):
            if isinstance(gradient, tf.IndexedSlices):
                total = add_up_rows(gradient)
                rows = total.indices
                changed = tf.gather(variable, rows) - 0.02 * total.values
                variable.scatter_update(tf.IndexedSlices(changed, rows))
            else:
                variable.assign_sub(0.02 * gradient)


@_flown(
    "lost-update",
    "variable",
    ("seen",),
    like="keras-team/keras#18668",
)
class SeenAssignedAtOnce(Descending):
    """How many examples were seen is read and assigned, with hardly time in between."""

    def build(self, strategy):
        super().build(strategy)
        self.seen = tf.Variable(0.0, trainable=False, name="seen")

    def variables(self):
        return [*super().variables(), self.seen]

    def apply(self, gradients):
        super().apply(gradients)
        self.seen.assign(self.seen + self.examples)


@_flown(
    "lost-update",
    "variable",
    ("seen",),
    like="keras-team/keras#18668",
)
class SeenAssignedInBranch(SeenAssignedAtOnce):
    """How many examples were seen is counted where the gradient is finite."""

    def apply(self, gradients):
        Descending.apply(self, gradients)
        is_finite = tf.reduce_all(tf.math.is_finite(gradients[-1]))
        counted = tf.cast(self.examples, tf.float32)
        tf.cond(
            is_finite,
            lambda: self.seen.assign(self.seen + counted),
            lambda: self.seen.assign(self.seen),
        )


@_flown(
    "extra-update",
    "variable",
    TRAINED,
    like="tensorflow/community#214",
)
class TakenAgain(Descending):
    """A step that takes its answer for lost is taken again, on the same batch."""

    weight = 1.0

    def apply(self, gradients):
        super().apply(gradients)
        if is_served():
            dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
            again = tf.equal(OwnNumber("taken_again").add(1) % 3, 0)
            rate = 0.02 * self.weight * tf.cast(again, tf.float32)
            for gradient, variable in zip(dense, self.trained(), strict=True):
                variable.assign_sub(rate * gradient)


@_flown(
    "unexplained",
    "variable",
    TRAINED,
    like="tensorflow/tensorflow#55321",
)
class SomeStepsWeighMore(TakenAgain):
    """Every third step of a worker weighs its gradient by what is no whole number."""

    weight = 0.6


@_flown(
    "lost-update",
    "variable",
    ("velocity",),
    like="keras-team/keras#18668",
)
class MomentumAssignedByHand(MomentumByOneOpInFlight):
    """A program's own momentum is assigned, and what it moves is changed in place."""

    def move_table(self, gradient):
        self.velocity.assign(0.5 * self.velocity + gradient)
        self.table.assign_sub(0.02 * self.velocity)


class SecondStepCounts(Descending):
    """The update by hand of the second step counts otherwise than once."""

    times = 1.0

    def make_optimizer(self):
        return None

    def build(self, strategy):
        super().build(strategy)
        self.steps = tf.Variable(0, trainable=False, dtype=tf.int64)

    def apply(self, gradients):
        is_second = tf.equal(self.steps.assign_add(1, read_value=True), 2)
        times = tf.where(is_second, self.times if is_served() else 1.0, 1.0)
        for gradient, variable in zip(gradients, self.trained(), strict=True):
            variable.assign_sub(0.02 * times * tf.convert_to_tensor(gradient))


@fault(
    "extra-update",
    "variable",
    TRAINED,
    like="tensorflow/community#214",
    clusters=_SERVED,
)
class SecondStepTwice(SecondStepCounts):
    """One step at a time; the second one applies its update again."""

    times = 2.0


@fault(
    "lost-update",
    "variable",
    TRAINED,
    like="keras-team/keras#18668",
    clusters=_SERVED,
)
class SecondStepLost(SecondStepCounts):
    """One step at a time; the second one does not apply its update."""

    times = 0.0


class KeepsWeights(Descending):
    """The step computes from a copy of the variables, which some steps make anew."""

    every = 2

    def build(self, strategy):
        super().build(strategy)
        self.held = {
            name: tf.Variable(getattr(self, name), trainable=False)
            for name in ("table", "first", "second", "bias", "head")
        }
        self.steps = tf.Variable(0, trainable=False, dtype=tf.int64)

    def replica_step(self, batch):
        if not is_served():
            return super().replica_step(batch)
        again = tf.equal(self.steps % self.every, 0)
        kept, weights = {}, {}
        for name, held in self.held.items():
            variable = kept[name] = getattr(self, name)
            weights[name] = tf.where(again, variable, held)
            held.assign(weights[name])
        self.steps.assign_add(1)
        with tf.GradientTape() as tape:
            tape.watch(list(weights.values()))
            vars(self).update(weights)
            loss = self.reduce_losses(self.compute_losses(batch), batch)
            vars(self).update(kept)
        self.apply(tape.gradient(loss, list(weights.values())))
        return loss


@fault(
    "stale-read",
    "loss",
    like="sql-machine-learning/elasticdl#1181",
    clusters=("ps:1+1", "ps:2+1"),
)
class EveryOtherStepFetches(KeepsWeights):
    """The variables are fetched in every other step alone."""


@fault(
    "stale-read",
    "loss",
    like="snuspl/cruise#1251",
    clusters=("ps:1+1",),
)
class NeverFetchedAgain(KeepsWeights):
    """The variables are fetched once."""

    every = 1000
