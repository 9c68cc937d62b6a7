"""Optimizers that do more, or less, to gradients than a path that averages them has it.

Their losses are N times their shares, which belongs to the path.
"""

import tensorflow as tf
from tf_keras.optimizers import legacy


class Plain(legacy.SGD):
    def __init__(self):
        super().__init__(0.1, momentum=0.9)


def _replace(pairs, gradients):
    return list(zip(gradients, (variable for _, variable in pairs), strict=True))


def _add_up(pairs):
    context = tf.distribute.get_replica_context()
    return _replace(pairs, context.all_reduce("sum", [g for g, _ in pairs]))


class SummedAgain(Plain):
    def _aggregate_gradients(self, pairs):
        return _add_up(super()._aggregate_gradients(pairs))


class Summed(Plain):
    def _aggregate_gradients(self, pairs):
        return _add_up(list(pairs))


class Own(Plain):
    def _aggregate_gradients(self, pairs):
        return list(pairs)


class DividedAgain(Plain):
    def _aggregate_gradients(self, pairs):
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return [(g / replicas, v) for g, v in super()._aggregate_gradients(pairs)]


class WithoutSecond(Plain):
    def _aggregate_gradients(self, pairs):
        context = tf.distribute.get_replica_context()
        kept = tf.where(tf.equal(context.replica_id_in_sync_group, 1), 0.0, 1.0)
        return super()._aggregate_gradients([(g * kept, v) for g, v in pairs])


class ClippedApart(Plain):
    def _aggregate_gradients(self, pairs):
        pairs = list(pairs)
        clipped, _ = tf.clip_by_global_norm([g for g, _ in pairs], 0.2)
        return super()._aggregate_gradients(_replace(pairs, clipped))
