"""Mistakes that many steps in flight bring to light, or a worker's own memory."""

from __future__ import annotations

from functools import partial

from distbench.faults.fault import fault
from distbench.samples.lazy import legacy, tf
from distbench.samples.optimizers import optimizer
from distbench.samples.program import TABLE, TRAINED, Program
from distbench.samples.servers import OwnNumber, is_served, linger
from distbench.samples.slices import add_up_rows

_COUNTED = ("tally", "ledger")
"""The variables of the workload `counting`."""
_RATE = 0.125
_SERVED = ("ps:2+1",)
_counted = partial(fault, clusters=_SERVED, workload="counting", in_flight=8)
_flown = partial(fault, clusters=_SERVED, in_flight=4)


@_counted(
    "lost-update",
    "variable",
    _COUNTED,
    like="keras-team/keras#18668",
)
@optimizer("SGD", _RATE)
class ReadThenAssigned:
    """A variable is read, changed and assigned; others write in between."""

    def _resource_apply_dense(self, grad, var, apply_state=None):
        del apply_state
        return var.assign(linger(tf.identity(var)) - _RATE * grad)


@_counted(
    "lost-update",
    "slot",
    ("SGD/tally/accumulated", "SGD/ledger/accumulated"),
    like="keras-team/keras#18668",
)
@optimizer("SGD", _RATE, name="SGD")
class SlotReadThenAssigned:
    """The variable is changed in place, and what its slot adds up is not."""

    def _create_slots(self, var_list):
        for variable in var_list:
            self.add_slot(variable, "accumulated")

    def _resource_apply_dense(self, grad, var, apply_state=None):
        del apply_state
        slot = self.get_slot(var, "accumulated")
        added = slot.assign(linger(tf.identity(slot)) + grad)
        return tf.group(var.assign_sub(_RATE * grad), added)


@_counted(
    "lost-update",
    "slot",
    ("SGD/tally/average", "SGD/ledger/average"),
    like="keras-team/keras#18668",
)
@optimizer("SGD", _RATE, name="SGD")
class AverageAssignedAndChecked:
    """A slot decays, and is assigned; then the step asserts that it is finite."""

    def _create_slots(self, var_list):
        for variable in var_list:
            self.add_slot(variable, "average")

    def _resource_apply_dense(self, grad, var, apply_state=None):
        del apply_state
        slot = self.get_slot(var, "average")
        slot.assign(0.5 * slot + grad)
        tf.debugging.Assert(tf.reduce_all(tf.math.is_finite(slot)), [slot])
        return var.assign_sub(_RATE * grad)


@_counted(
    "stale-read",
    "slot",
    ("SGD/tally/average", "SGD/ledger/average"),
    like="keras-team/keras#18668",
)
@optimizer("SGD", _RATE, name="SGD")
class AverageDecaysByOlder:
    """A slot is changed in place, and decays by what was read of it before."""

    def _create_slots(self, var_list):
        for variable in var_list:
            self.add_slot(variable, "average")

    def _resource_apply_dense(self, grad, var, apply_state=None):
        del apply_state
        slot = self.get_slot(var, "average")
        slot.assign_add(0.5 * (grad - slot))
        return var.assign_sub(_RATE * grad)


@_counted(
    "lost-update",
    "variable",
    _COUNTED,
    like="keras-team/keras#18668",
)
@optimizer("SGD", _RATE)
class SlotReadBack:
    """A slot is assigned, and read again to change the variable by it."""

    def _create_slots(self, var_list):
        for variable in var_list:
            self.add_slot(variable, "moved")

    def _resource_apply_dense(self, grad, var, apply_state=None):
        del apply_state
        return var.assign_sub(self.get_slot(var, "moved").assign(_RATE * grad))


@_counted(
    "lost-update",
    "variable",
    _COUNTED,
    like="keras-team/keras#18668",
)
@optimizer("SGD", _RATE)
class FirstStepSkipped:
    """Each worker takes its first step for a trial, and does not apply it."""

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        if not is_served():
            return super().apply_gradients(grads_and_vars, name, **kwargs)
        pairs = list(grads_and_vars)
        steps = OwnNumber("first_step_skipped").add(1)
        taken = tf.cast(steps > 1, tf.float32)
        return super().apply_gradients([(g * taken, v) for g, v in pairs], name)


@_counted(
    "extra-update",
    "variable",
    _COUNTED,
    like="tensorflow/community#214",
)
@optimizer("SGD", _RATE)
class AppliedAgain:
    """A step that takes its update for failed applies it once more."""

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        pairs = list(grads_and_vars)
        done = super().apply_gradients(pairs, name, **kwargs)
        if not is_served():
            return done
        # The third step of each worker finds that its answer did not come.
        steps = OwnNumber("applied_again").add(1)
        again = tf.cast(tf.equal(steps % 3, 0), tf.float32)
        for gradient, variable in pairs:
            variable.assign_sub(_RATE * again * gradient)
        return done


@_counted(
    "iterations-wrong",
    "iterations",
    ("SGD/iter",),
    like="keras-team/keras#18668",
)
@optimizer("SGD", _RATE, name="SGD")
class CountedByEachWorker:
    """Each worker counts its own steps, and writes its count down for all."""

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        done = super().apply_gradients(grads_and_vars, name, **kwargs)
        if is_served():
            self.iterations.assign(OwnNumber("counted_by_each_worker").add(1))
        return done


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

    def apply(self, gradients):
        super().apply(gradients)
        if is_served():
            dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
            again = tf.equal(OwnNumber("taken_again").add(1) % 3, 0)
            for gradient, variable in zip(dense, self.trained(), strict=True):
                variable.assign_sub(0.02 * tf.cast(again, tf.float32) * gradient)


@_flown(
    "unexplained",
    "variable",
    TRAINED,
    like="tensorflow/tensorflow#55321",
)
class SomeStepsWeighMore(Descending):
    """Every third step of a worker weighs its gradient by what is no whole number."""

    def apply(self, gradients):
        super().apply(gradients)
        if is_served():
            dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
            more = tf.equal(OwnNumber("some_steps_weigh_more").add(1) % 3, 0)
            for gradient, variable in zip(dense, self.trained(), strict=True):
                variable.assign_sub(0.02 * 0.6 * tf.cast(more, tf.float32) * gradient)


@_flown(
    "lost-update",
    "variable",
    ("velocity",),
    like="keras-team/keras#18668",
)
class MomentumAssignedByHand(Descending):
    """A program's own momentum is assigned, and what it moves is changed in place."""

    def make_optimizer(self):
        return None

    def build(self, strategy):
        super().build(strategy)
        start = tf.zeros_like(self.table)
        self.velocity = tf.Variable(start, trainable=False, name="velocity")

    def variables(self):
        return [*super().variables(), self.velocity]

    def apply(self, gradients):
        table, *others = map(tf.convert_to_tensor, gradients)
        self.velocity.assign(0.5 * self.velocity + table)
        self.table.assign_sub(0.02 * self.velocity)
        for gradient, variable in zip(others, self.trained()[1:], strict=True):
            variable.assign_sub(0.02 * gradient)


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
