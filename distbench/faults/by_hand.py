"""Mistakes of users who update by hand and keep their own momentum."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import (
    BIAS,
    BUFFERS,
    FIRST,
    HEAD,
    SECOND,
    TABLE,
    TRAINED,
    ByHand,
    MomentumByHand,
    PartlyByHand,
)
from distbench.samples.replicas import all_reduce, count_replicas, find_replica
from distbench.unusual.by_hand import (
    CountedMicroStepsByHand,
    FactoredByHand,
    SignsByHand,
    TasksProjectedByHand,
)
from distbench.unusual.grouping import BatchStatistics


@fault("missing-reduction", "variable", TRAINED, like="keras-team/keras#19467")
class NobodySumsForTheMomentum(MomentumByHand):
    """Every replica goes on with its own gradient."""

    def reduce(self, gradient):
        return gradient


@fault(
    "mean-instead-of-sum",
    "variable",
    TRAINED,
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class MeanByHand(ByHand):
    """The user averages gradients that are shares of the whole batch's."""

    def reduce(self, gradient):
        return all_reduce("mean", gradient)


@fault(
    "mean-instead-of-sum",
    "variable",
    TRAINED,
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class MomentumOfTheMean(MomentumByHand):
    """A momentum by hand takes the mean of shares of the whole batch's gradients."""

    def reduce(self, gradient):
        return all_reduce("mean", gradient)


@fault(
    "mean-instead-of-sum",
    "variable",
    (*TRAINED, *BUFFERS),
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class MeanOfMicroStepsByHand(CountedMicroStepsByHand):
    """A momentum by hand takes the mean of what replicas add up in micro-steps."""

    def reduce(self, gradient):
        return all_reduce("mean", gradient)


@fault(
    "missing-reduction",
    "variable",
    (*TRAINED, *BUFFERS),
    like="keras-team/keras#19467",
    clusters=("mirrored:3", "mwms:2"),
)
class LastMicroStepSummedByHand(CountedMicroStepsByHand):
    """Of three micro-steps the last one is summed alone, and the others stay own."""

    def differentiate(self, batch, number):
        loss, gradients = super().differentiate(batch, number)
        if number == self.parts - 1:
            gradients = list(all_reduce("sum", gradients))
        return loss, gradients

    def reduce(self, gradient):
        return gradient


@fault(
    "mean-of-means",
    "loss",
    like="huggingface/transformers#34242",
    clusters=("mirrored:2", "mwms:3"),
)
class MicroStepsWeighAlikeByHand(CountedMicroStepsByHand):
    """Each micro-step is divided by what counts of it on all replicas."""

    def reduce_losses(self, losses, batch):
        weights = self.weigh(batch)
        count = all_reduce("sum", tf.reduce_sum(weights))
        return tf.reduce_sum(losses * weights) / count / self.parts


@fault(
    "mean-instead-of-sum",
    "variable",
    (BIAS, HEAD),
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class MomentumOfTheMeanBesideOptimizer(MomentumOfTheMean, PartlyByHand):
    """An optimizer sums three gradients; a momentum by hand takes the others' mean."""

    def apply(self, gradients):
        pairs = zip(gradients[:3], self.trained()[:3], strict=True)
        self._optimizer.apply_gradients(pairs)
        for place, gradient in enumerate(gradients[3:], 3):
            self.take(place, gradient)


@fault(
    "mean-instead-of-sum",
    "variable",
    (TABLE, FIRST, SECOND, HEAD),
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class MeanByHandUnderStatistics(BatchStatistics, MeanByHand):
    """An average by hand under batch statistics, which leave a bias no gradient."""


@fault(
    "mean-instead-of-sum",
    "variable",
    (BIAS, HEAD),
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class MeanByHandBesideOptimizer(PartlyByHand):
    """An optimizer sums what it is given, and the user averages the others."""

    def reduce(self, gradient):
        return all_reduce("mean", gradient)


@fault(
    "mean-instead-of-sum",
    "variable",
    (HEAD,),
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class MeanBesideOptimizerUnderStatistics(BatchStatistics, MeanByHandBesideOptimizer):
    """The user averages what no optimizer is given, under batch statistics."""


@fault(
    "mean-instead-of-sum",
    "variable",
    (*TRAINED, *BUFFERS),
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class TasksAveragedByHand(TasksProjectedByHand):
    """Gradients of two tasks are averaged, so none is told to be the replica's own."""

    def reduce(self, gradient):
        return all_reduce("mean", gradient)


@fault(
    "missing-reduction", "variable", (*TRAINED, *BUFFERS), like="keras-team/keras#19467"
)
class TasksThatNobodySums(TasksProjectedByHand):
    """Every replica projects its own gradients of two tasks, and goes on with them."""

    def reduce(self, gradient):
        return gradient


@fault("slot-repeated", "slot", BUFFERS, like="tensorflow/addons#2683")
class MomentumForEachReplica(MomentumByHand):
    """The buffer decays and takes a share once for each replica."""

    def move(self, copy, gradient):
        count = count_replicas()
        for _ in range(count):
            copy.assign(self.beta * copy + gradient / count)


@fault("momentum-repeated", "slot", BUFFERS, like="keras-team/keras#20541")
class MomentumSummedOverReplicas(MomentumByHand):
    """Each replica adds its gradient to the old momentum, and all of that is summed."""

    def move(self, copy, gradient):
        copy.assign(count_replicas() * self.beta * copy + gradient)


@fault(
    "replica-dropped",
    "variable",
    TRAINED,
    like="tensorflow/addons#2683",
    replicas=(1,),
)
class MomentumOfTheFirstReplica(MomentumByHand):
    """The buffers take the gradient of replica 0 and not the sum."""

    def reduce(self, gradient):
        mine = 1.0 if count_replicas() == 1 or find_replica() == 0 else 0.0
        return super().reduce(tf.convert_to_tensor(gradient) * mine)


@fault(
    "scale-error",
    "variable",
    TRAINED,
    like="tensorflow/addons#2683",
    replicas=(0,),
)
class MomentumOfTheFirstReplicaTwice(MomentumByHand):
    """The buffers take the gradient of replica 0 twice in the sum."""

    def reduce(self, gradient):
        times = 2.0 if count_replicas() > 1 and find_replica() == 0 else 1.0
        return super().reduce(tf.convert_to_tensor(gradient) * times)


@fault(
    "clip-before-reduction",
    "variable",
    TRAINED,
    like="LeelaChessZero/lczero-training#162",
    clusters=("mirrored:2", "mwms:3"),
)
class ClippedThenSummedByHand(ByHand):
    """Each replica clips the global norm of its gradients, and the user sums."""

    def apply(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        super().apply(tf.clip_by_global_norm(dense, 0.05)[0])


@fault("mean-instead-of-sum", "variable", TRAINED, like="keras-team/keras#20541")
class OwnMomentsAveraged(ByHand):
    """Each replica keeps a momentum of its own gradients; the step takes their mean."""

    def build(self, strategy):
        super().build(strategy)
        self.own = [
            tf.Variable(
                tf.zeros_like(v),
                trainable=False,
                name=f"own{i}",
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )
            for i, v in enumerate(self.trained())
        ]

    def variables(self):
        return [*self.trained(), *self.own]

    def apply(self, gradients):
        for own, variable, gradient in zip(
            self.own, self.trained(), gradients, strict=True
        ):
            own.assign(0.75 * own + gradient)
            self.update(variable, all_reduce("mean", tf.identity(own)))


@fault(
    "slot-from-local-gradient",
    "variable",
    ("rows", "columns"),
    like="keras-team/keras#20703",
)
class FactoredSquaresAddedUp(FactoredByHand):
    """Rows and columns keep the replicas' own squares, added up."""

    def square(self, own, total):
        return all_reduce("sum", own**2)


@fault("nonlinear-before-reduction", "variable", TRAINED, like="horovod/horovod#3786")
class SignsOutvotedByHand(SignsByHand):
    """The replicas vote on each element's sign."""

    def choose(self, gradient):
        return tf.sign(self.reduce(tf.sign(gradient)))


@fault("replicas-diverged", "variable", TRAINED, like="deepspeedai/DeepSpeed#490")
class LengthsByOwnNorms(ByHand):
    """The sum is divided by a norm, for which each replica takes its own gradient's."""

    def apply(self, gradients):
        for gradient, variable in zip(gradients, self.trained(), strict=True):
            own = tf.convert_to_tensor(gradient)
            self.update(variable, self.reduce(own) / (tf.norm(own) + 0.1))
