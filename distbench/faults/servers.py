"""Optimizers with mistakes that many steps in flight bring to light."""

from __future__ import annotations

from functools import partial

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.optimizers import optimizer
from distbench.samples.servers import OwnNumber, is_served, linger

_COUNTED = ("tally", "ledger")
"""The variables of the workload `counting`."""
_RATE = 0.125
_SERVED = ("ps:2+1",)
_counted = partial(fault, clusters=_SERVED, workload="counting", in_flight=8)


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
