"""Mistakes in when a gradient is used: too late, or accumulated wrongly."""

from __future__ import annotations

from functools import partial

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import legacy, tf
from distbench.samples.optimizers import keras2_optimizer
from distbench.samples.program import TRAINED, OwnReduction
from distbench.samples.replicas import (
    all_reduce,
    count_replicas,
    make_own_zeros,
    make_zeros,
    pass_through,
)
from distbench.unusual.stepping import MicroSteps as _MicroSteps
from distbench.unusual.stepping import MicroStepsInLoop

_accumulated = partial(fault, "accumulation-scale", "reduced_gradient", TRAINED)


class Pending(OwnReduction):
    """Keeps reduced gradients of earlier steps beside the optimizer."""

    lag = 1

    def build(self, strategy):
        super().build(strategy)
        # One queue on each replica: what is in it was reduced already.
        self.pending = [make_own_zeros(self.trained()) for _ in range(self.lag)]

    def delay(self, gradients):
        """The gradients of `lag` steps before."""
        return pass_through(self.pending, gradients)


@fault(
    "stale-gradient",
    "reduced_gradient",
    TRAINED,
    like="sql-machine-learning/elasticdl#89",
    clusters=WIDE,
)
class ReducedWhileNextStepRuns(Pending):
    """The all-reduce overlaps with the next step, which takes the last one's result."""

    def reduce(self, gradients):
        reduced = super().reduce(gradients)
        return self.delay(reduced) if count_replicas() > 1 else reduced


@fault(
    "stale-gradient",
    "reduced_gradient",
    TRAINED,
    like="openai/universe-starter-agent#67",
)
class TwoStepsBehind(Pending):
    """The all-reduce overlaps with two steps, so results come two steps late."""

    lag = 2

    def reduce(self, gradients):
        reduced = super().reduce(gradients)
        return self.delay(reduced) if count_replicas() > 1 else reduced


@fault(
    "stale-gradient",
    "applied_gradient",
    TRAINED,
    like="sql-machine-learning/elasticdl#89",
)
class TransformerKeepsGradients(Pending):
    """A transformer of the optimizer hands out what it was given a step before."""

    def make_optimizer(self):
        return legacy.SGD(0.05, momentum=0.9, gradient_transformers=[self.keep])

    def keep(self, pairs):
        gradients = [gradient for gradient, _ in pairs]
        late = self.delay(gradients)
        taken = late if count_replicas() > 1 else gradients
        return list(zip(taken, (variable for _, variable in pairs), strict=True))

    def apply(self, gradients):
        self._optimizer.apply_gradients(zip(gradients, self.trained(), strict=True))


@fault(
    "stale-gradient",
    "reduced_gradient",
    ("kernel", "bias"),
    like="sql-machine-learning/elasticdl#89",
    workload="linear",
)
@keras2_optimizer("SGD", 0.01)
class SumsOfTheStepBefore:
    """On a cluster alone an optimizer keeps each sum, and takes the last step's one."""

    _kept = None

    def apply_gradients(
        self, grads_and_vars, name=None, skip_gradients_aggregation=False, **options
    ):
        pairs = list(grads_and_vars)
        if self._kept is None:
            with tf.init_scope():
                self._kept = make_zeros((v for _, v in pairs), "kept", "MEAN")
        if not skip_gradients_aggregation:
            pairs = self.aggregate_gradients(pairs)
        if count_replicas() > 1:
            sums = [gradient for gradient, _ in pairs]
            late = pass_through([self._kept], sums)
            pairs = list(zip(late, (variable for _, variable in pairs), strict=True))
        return super().apply_gradients(
            pairs, name=name, skip_gradients_aggregation=True, **options
        )


@fault(
    "stale-gradient",
    "applied_gradient",
    ("kernel", "bias"),
    like="sql-machine-learning/elasticdl#89",
    workload="linear",
)
@keras2_optimizer("SGD", 0.01)
class StepsOfTheStepBefore:
    """Without a momentum, so that slots forget, a rule takes the last gradients."""

    def build(self, var_list):
        super().build(var_list)
        if not hasattr(self, "_before"):
            self._before = [
                self.add_variable_from_reference(variable, "before")
                for variable in var_list
            ]

    def update_step(self, gradient, variable):
        before = self._before[self._index_dict[self._var_key(variable)]]
        taken = tf.identity(before) if count_replicas() > 1 else gradient
        before.assign(gradient)
        super().update_step(taken, variable)


class MicroSteps(OwnReduction, _MicroSteps):
    """Gradients of three parts of the shard are added up before the reduction."""


@_accumulated(like="deepspeedai/DeepSpeed#7773", clusters=WIDE)
class MicroStepsCountedAgain(MicroSteps):
    """On a cluster the loop hands over three times the sum of three micro-steps."""

    def transform(self, gradients):
        times = self.parts if count_replicas() > 1 else 1
        return [gradient * times for gradient in gradients]


@_accumulated(like="Lightning-AI/pytorch-lightning#19987", clusters=WIDE)
class PartialWindowDivided(MicroSteps):
    """A window of two micro-steps is divided by the three of a whole one."""

    parts = 2

    def transform(self, gradients):
        scale = 2 / 3 if count_replicas() > 1 else 1.0
        return [gradient * scale for gradient in gradients]


@fault(
    "mean-of-means",
    "loss",
    ("", *TRAINED),
    like="huggingface/transformers#34242",
    clusters=("mirrored:2", "mwms:3"),
)
class MicroStepsWeighAlike(MicroSteps):
    """Each part is a mean over its own examples, and all of them are averaged."""

    loss_reduction = "mean"

    def reduce_losses(self, losses, batch):
        return tf.reduce_mean(losses) / self.parts

    def reduce(self, gradients):
        return list(all_reduce("mean", gradients))


@_accumulated(like="NVIDIA/Megatron-LM#3023", clusters=WIDE)
class AccumulatedDividedAgain(MicroSteps):
    """What is accumulated is divided by N each time that a part is added."""

    def add(self, total, gradients):
        n = count_replicas()
        return super().add([value / n for value in total], gradients)


@_accumulated(like="NVIDIA/Megatron-LM#3023")
class AccumulatedSummedAgain(MicroSteps):
    """What is accumulated is summed over the replicas each time, and not at the end."""

    def add(self, total, gradients):
        return super().reduce(super().add(total, gradients))

    def reduce(self, gradients):
        return gradients


@_accumulated(like="deepspeedai/DeepSpeed#7773")
class LastPartAlone(MicroSteps):
    """On a cluster the gradients of each part take the place of those before."""

    def add(self, total, gradients):
        return gradients if count_replicas() > 1 else super().add(total, gradients)


class PartsButOneSummed(MicroSteps):
    """The loop sums a micro-step by itself, and not all of them."""

    own = 2

    def differentiate(self, batch, number):
        loss, gradients = super().differentiate(batch, number)
        is_own = number == self.own
        return loss, gradients if is_own else super().reduce(gradients)

    def reduce(self, gradients):
        return gradients


@fault(
    "missing-reduction",
    "reduced_gradient",
    TRAINED,
    like="keras-team/keras#19467",
    clusters=("mirrored:3", "mwms:2"),
)
class LastPartNotSummed(PartsButOneSummed):
    """Of three micro-steps the last one stays the replica's own."""


@fault("missing-reduction", "reduced_gradient", TRAINED, like="keras-team/keras#19467")
class FirstOfTwoPartsNotSummed(PartsButOneSummed):
    """Of two micro-steps the first one stays the replica's own, and each is halved."""

    parts = 2
    own = 0

    def transform(self, gradients):
        return [gradient / self.parts for gradient in gradients]


@_accumulated(like="Lightning-AI/pytorch-lightning#19987", clusters=WIDE)
class AveragedOverLoop(OwnReduction, MicroStepsInLoop):
    """Shares of the mean are averaged over the passes of a loop in the graph."""

    def transform(self, gradients):
        scale = 1 / self.parts if count_replicas() > 1 else 1.0
        return [gradient * scale for gradient in gradients]


@_accumulated(like="NVIDIA/Megatron-LM#3023", clusters=WIDE)
class AccumulatedDividedAgainInLoop(OwnReduction, MicroStepsInLoop):
    """What is accumulated is divided by N in each pass of a loop in the graph."""

    def add(self, total, gradients):
        n = count_replicas()
        return super().add([value / n for value in total], gradients)
