"""Mistakes of users who keep both moments of an Adam by hand."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.program import TRAINED, AdamByHand
from distbench.samples.replicas import all_reduce, count_replicas

_MOMENTS = tuple(f"moment{place}" for place in range(len(TRAINED)))
_SQUARES = tuple(f"square{place}" for place in range(len(TRAINED)))


@fault("mean-instead-of-sum", "variable", TRAINED, like="keras-team/keras#20541")
class MomentsOfTheMean(AdamByHand):
    """Both moments of an Adam by hand take the mean, and nobody sees a sum."""

    def reduce_all(self, gradients):
        return list(all_reduce("mean", gradients))


@fault(
    "double-reduction",
    "variable",
    (*TRAINED, *_MOMENTS, *_SQUARES),
    like="horovod/horovod#2654",
)
class SummedTwiceThenClipped(AdamByHand):
    """Twice the sum is clipped by its elements before the moments take it."""

    def reduce_all(self, gradients):
        total = super().reduce_all(super().reduce_all(gradients))
        return [tf.clip_by_value(gradient, -0.02, 0.02) for gradient in total]


@fault(
    "lower-precision",
    "variable",
    (*TRAINED, *_MOMENTS, *_SQUARES),
    like="pytorch/pytorch#162338",
    clusters=("mirrored:2", "mwms:3"),
    warning=True,
)
class MomentsOfOneBucket(AdamByHand):
    """Gradients travel in a bucket of bfloat16, are clipped, and no sum is seen."""

    def reduce_all(self, gradients):
        bucket = tf.concat([tf.reshape(g, [-1]) for g in gradients], axis=0)
        total = all_reduce("sum", tf.cast(bucket, tf.bfloat16))
        sizes = [g.shape.num_elements() for g in gradients]
        parts = tf.split(tf.cast(total, tf.float32), sizes)
        whole = [tf.reshape(p, g.shape) for p, g in zip(parts, gradients, strict=True)]
        return tf.clip_by_global_norm(whole, 0.05)[0]


@fault(
    "clip-before-reduction",
    "variable",
    (*_MOMENTS, *_SQUARES),
    like="tensorflow/tensorflow#25806",
)
class MomentsOfClippedElements(AdamByHand):
    """Each replica clips its elements before an Adam by hand sums."""

    def reduce_all(self, gradients):
        return super().reduce_all(
            [tf.clip_by_value(gradient, -0.01, 0.01) for gradient in gradients]
        )


@fault("hyperparameter-differs", "variable", TRAINED, like="horovod/horovod#2654")
class EpsilonTimesReplicas(AdamByHand):
    """What an Adam by hand adds below the fraction follows the number of replicas."""

    def find_epsilon(self):
        return 0.01 * count_replicas()


@fault("slot-from-local-gradient", "slot", _MOMENTS, like="deepspeedai/DeepSpeed#490")
class FirstMomentsOfOwnGradients(AdamByHand):
    """The first moments take the replica's own gradient, the second ones the sum."""

    def take_first(self, own, total):
        return own


@fault("slot-from-local-gradient", "slot", _SQUARES, like="keras-team/keras#20703")
class SecondMomentsAddUpSquares(AdamByHand):
    """The second moments take the sum of the replicas' squares."""

    def take_second(self, own, total):
        return all_reduce("sum", own**2)


@fault("update-repeated", "variable", ("count",), like="keras-team/keras#19990")
class CorrectedByStepsOfAll(AdamByHand):
    """The steps by which moments are corrected count once for each replica."""

    def build(self, strategy):
        super().build(strategy)
        self.count = tf.Variable(
            0.0,
            name="count",
            trainable=False,
            aggregation=tf.VariableAggregation.SUM,
        )

    def apply(self, gradients):
        self.count.assign_add(tf.ones([]))
        super().apply(gradients)

    def update(self, variable, gradient):
        rest = 1.0 - 0.9 ** tf.identity(self.count)
        super().update(variable, gradient / tf.sqrt(rest))


@fault(
    "nonlinear-before-reduction", "variable", _MOMENTS, like="deepspeedai/DeepSpeed#490"
)
class FirstMomentsOfUnitGradients(AdamByHand):
    """The first moments take the mean of gradients that have a norm of 1 each."""

    def take_first(self, own, total):
        del total
        return all_reduce("mean", own / (tf.norm(own) + 0.1))
