"""Unusual but correct optimizers."""

from __future__ import annotations

from distbench.samples.changing import Changing
from distbench.samples.lazy import legacy, schedules, tf
from distbench.samples.optimizers import (
    AlongNewMomentum,
    DecayInMomentum,
    DecayInTrustRatio,
    Lookahead,
    OwnRule,
    ScaledByEstimate,
    SignsBesideDecay,
    optimizer,
)
from distbench.samples.program import Program
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.samples.second_moments import FactoredMoments, NormOfLayer
from distbench.samples.switching import Corrected, Switching
from distbench.unusual.program import unusual


@unusual(workload="linear")
@optimizer("Optimizer", "OwnRule")
class RowAndColumnMoments(OwnRule):
    """Second moments of rows and columns alone: slots of another shape."""

    def create_slots(self, variable):
        super().create_slots(variable)
        for axis, name in enumerate(("rows", "columns")[: len(variable.shape)]):
            shape = [variable.shape[axis]]
            self.add_slot(variable, name, tf.constant_initializer(0.1), shape=shape)

    def update_slot(self, slot, grad, var):
        if len(var.shape) < 2:
            slot.assign(self.beta * slot + grad)
            return
        rows, columns = self.get_slot(var, "rows"), self.get_slot(var, "columns")
        rows.assign(0.9 * rows + 0.1 * tf.reduce_mean(grad**2, axis=1))
        columns.assign(0.9 * columns + 0.1 * tf.reduce_mean(grad**2, axis=0))
        scale = tf.tensordot(rows, columns, 0) / tf.reduce_mean(rows)
        slot.assign(self.beta * slot + grad / tf.sqrt(scale))


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class TrustRatio(OwnRule):
    """The step of a variable is as long as the variable, as LARS and LAMB have it."""

    def update_variable(self, var, slot, grad):
        ratio = tf.norm(var) / (tf.norm(slot) + 1e-6)
        return var.assign_sub(0.01 * ratio * slot)


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class SlowWeightsEveryOtherStep(Lookahead):
    """Slow weights that move every other step, and take the variables along."""


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class SlowWeightsEveryFifthStep(Lookahead):
    """Slow weights that move for the first time after all steps that a check begins."""

    period = 5


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class AnotherRuleFromTheSixthStepOn(Switching):
    """A rule becomes another one after all steps that a check begins with."""


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class SquaresCorrectedForTheirStart(Corrected):
    """A mean of squares is corrected by the number of steps, as in Adam."""


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class SignsOfMomentumBesideDecay(SignsBesideDecay):
    """A step is the sign of momentum and gradient, beside a decay, as under Lion."""


@unusual(workload="linear")
@optimizer("SGD", 0.01)
class LargeSumClipped(Changing):
    """The global norm of the sum is clipped, and no gradient is that large."""

    sums_first = True

    def change(self, gradients):
        return tf.clip_by_global_norm(gradients, 10.0)[0]


@unusual(workload="linear")
@optimizer("SGD", 0.01)
class EachSumClipped(Changing):
    """The global norm of the sum is clipped, in every step."""

    sums_first = True

    def change(self, gradients):
        return tf.clip_by_global_norm(gradients, 0.05)[0]


@unusual(workload="regularized")
@optimizer("SGD", 0.01)
class TimesFortyAndBack(Changing):
    """Gradients are scaled up and down again before the sum: most keep their bits."""

    def change(self, gradients):
        return [gradient * 40.0 / 40.0 for gradient in gradients]


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class AveragedWeights(OwnRule):
    """Keeps a moving average of every variable, which starts as a copy of it."""

    def create_slots(self, variable):
        super().create_slots(variable)
        start = tf.constant_initializer(variable.numpy())
        self.add_slot(variable, "average", start)

    def update_variable(self, var, slot, grad):
        super().update_variable(var, slot, grad)
        average = self.get_slot(var, "average")
        return average.assign(0.9 * average + 0.1 * var)


@unusual(workload="linear")
@optimizer("Optimizer", "OwnRule")
class DecoupledDecay(OwnRule):
    """The decay is part of the update and no part of the loss."""

    decay = 0.1


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class DecayBesideMomentsInTrustRatio(DecayInTrustRatio):
    """A trust ratio of momentum and decay together, as LAMB has it."""


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class DecayThatMomentumTakes(DecayInMomentum):
    """The decay is added to the gradient that a momentum takes."""


@unusual(workload="embedding")
@optimizer("Adam", 0.05, amsgrad=True)
class Amsgrad:
    """Adam with the largest second moment so far."""


@unusual(workload="embedding")
@optimizer("SGD", 0.1, momentum=0.9, nesterov=True, global_clipnorm=0.1)
class ClippedByTheOptimizer:
    """The optimizer clips the global norm of the sums."""


@unusual(workload="linear")
@optimizer("RMSprop", 0.05, momentum=0.9, centered=True, decay=0.1)
class CentredWithDecay:
    """Three slots, and a learning rate that decays with the steps."""


@unusual(workload="embedding")
@optimizer("Ftrl", 0.05, l1_regularization_strength=0.01)
class FollowTheLeader:
    """Follow the regularised leader, whose step is no multiple of the gradient."""


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class MovesAlongNewMomentum(AlongNewMomentum):
    """Nesterov's momentum moves along what it has just become, and the gradient."""


@unusual()
class HalvesItsRate(Program):
    """The learning rate is half as large in each step as in the one before."""

    def make_optimizer(self):
        optimizer = legacy.SGD(lambda: 0.05 * 0.5 ** self.count(optimizer.iterations))
        return optimizer

    def count(self, steps):
        """What the rate follows."""
        return tf.cast(steps, tf.float32)


@unusual()
class Schedule(Program):
    """The learning rate follows a schedule of the steps."""

    def make_optimizer(self):
        return legacy.Adam(schedules.ExponentialDecay(0.05, 1, 0.5))


@unusual(workload="embedding")
@optimizer("SGD", 0.1, momentum=0.9)
class ScaledUpThenAveraged:
    """Gradients are multiplied by N, and the aggregation averages."""

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        scaled = [
            (tf.convert_to_tensor(g) * count_replicas(), v) for g, v in grads_and_vars
        ]
        return super().apply_gradients(scaled, name, **kwargs)

    def _aggregate_gradients(self, grads_and_vars):
        means = all_reduce("mean", [g for g, _ in grads_and_vars])
        return list(zip(means, (v for _, v in grads_and_vars), strict=True))


@unusual(workload="linear")
@optimizer("SGD", 0.1)
class LazySlot:
    """A slot is made in the first update, not before."""

    def _resource_apply_dense(self, grad, var, apply_state=None):
        return super()._resource_apply_dense(grad, var, apply_state)

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        pairs = list(grads_and_vars)
        with tf.init_scope():
            for _, variable in pairs:
                self.add_slot(variable, "late")
        return super().apply_gradients(pairs, name, **kwargs)


@unusual(workload="mlp")
@optimizer("Optimizer", "OwnRule")
class ScaledByEstimateOfAll(ScaledByEstimate):
    """A rule multiplies by a distance that is estimated of all gradients (Prodigy)."""


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class FactorsThatForgetLess(FactoredMoments):
    """Second moments of rows and columns, at a rate by the number of steps."""


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class LayersByTheirNorms(NormOfLayer):
    """An average of each layer's squared norm, which starts as the first one."""
