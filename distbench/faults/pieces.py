"""Sums of gradients of which some elements stay each replica's own."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.program import SECOND, TRAINED, OwnReduction
from distbench.samples.replicas import all_reduce, count_replicas, find_replica


@fault(
    "missing-reduction",
    "reduced_gradient",
    TRAINED,
    like="NVIDIA/Megatron-LM#1446",
    clusters=("mirrored:3", "mwms:2"),
)
class PartsNeverGathered(OwnReduction):
    """Each replica sums its part of every gradient, and nobody gathers the parts."""

    def reduce(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        pairs = zip(dense, all_reduce("sum", dense), strict=True)
        return [self.take_part(own, total) for own, total in pairs]

    def take_part(self, own, total):
        """The sum in the replica's own part, which is one of as many as there are."""
        place = tf.reshape(tf.range(tf.size(own)), tf.shape(own))
        mine = tf.equal(place % count_replicas(), find_replica())
        return tf.where(mine, total, own)


@fault(
    "missing-reduction",
    "reduced_gradient",
    (SECOND,),
    like="NVIDIA/Megatron-LM#1446",
    replicas=(-1,),
)
class RareFeatureNotSummed(OwnReduction):
    """All rows of a gradient are summed but one, and one shard has only 0 there."""

    def data(self, step):
        words, features, targets = super().data(step)
        features[self.examples // 2 :, -1] = 0
        return words, features, targets

    def reduce(self, gradients):
        summed = super().reduce(gradients)
        place = TRAINED.index(SECOND)
        summed[place] = tf.concat([summed[place][:-1], gradients[place][-1:]], axis=0)
        return summed
