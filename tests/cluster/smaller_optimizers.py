"""Optimizers that take the size from every gradient of a workload."""

from __future__ import annotations

import tensorflow as tf
import tf_keras
from larger_optimizers import ClipsFirst


class _Sums(tf_keras.optimizers.legacy.SGD):
    """Sums by itself, divides by a number of its own, and changes what that gives."""

    def __init__(self, change, *, averages=False):
        super().__init__(0.01)
        self.change = change
        self.averages = averages

    def apply_gradients(self, grads_and_vars, name=None, **options):
        options["experimental_aggregate_gradients"] = False
        gradients, variables = zip(*grads_and_vars, strict=True)
        context = tf.distribute.get_replica_context()
        how = "MEAN" if self.averages else "SUM"
        total = context.all_reduce(how, [tf.convert_to_tensor(g) for g in gradients])
        pairs = zip(self.change(total), variables, strict=True)
        return super().apply_gradients(pairs, name, **options)


def _clip(gradients, limit=0.25):
    return tf.clip_by_global_norm(gradients, limit)[0]


def _clip_far(gradients):
    return _clip(gradients, 0.01)


def _clip_later(gradients):
    """Larger ones alone: the size of those of a workload is seen."""
    return _clip(gradients, 10.0)


def _normalise(gradients):
    norm = tf.linalg.global_norm(gradients)
    return [gradient / (norm + 1e-6) for gradient in gradients]


def _spoil(gradients):
    return [gradient * float("nan") for gradient in gradients]


def _take_signs(gradients):
    return [tf.sign(gradient) for gradient in gradients]


def make_averages_clips():
    return _Sums(_clip, averages=True)


def make_sums_clips():
    return _Sums(_clip)


def make_averages_clips_far():
    return _Sums(_clip_far, averages=True)


def make_sums_clips_later():
    return _Sums(_clip_later)


def make_normalises():
    return _Sums(_normalise)


def make_takes_signs():
    return _Sums(_take_signs)


class AveragesClips(ClipsFirst):
    """A program with data of its own."""

    def make_optimizer(self):
        return make_averages_clips()


def make_spoils():
    return _Sums(_spoil)
