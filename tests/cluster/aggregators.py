"""Optimizers whose aggregator returns no pairs of gradients and variables."""

from __future__ import annotations

import tensorflow as tf
import tf_keras


def _make(aggregator):
    return tf_keras.optimizers.legacy.SGD(0.1, gradient_aggregator=aggregator)


def _add_up(pairs):
    context = tf.distribute.get_replica_context()
    return context.all_reduce("sum", [gradient for gradient, _ in pairs])


def make_bare():
    """It returns the sums alone."""
    return _make(_add_up)


def make_empty():
    """It returns nothing."""
    return _make(lambda pairs: print(len(pairs)))


def make_bare_on_clusters():
    """It returns the sums alone where there are several replicas."""

    def aggregate(pairs):
        context = tf.distribute.get_replica_context()
        return pairs if context.num_replicas_in_sync == 1 else _add_up(pairs)

    return _make(aggregate)
