"""Correct programs in which the terms of a sum over the batch cancel."""

from __future__ import annotations

import numpy as np

from distbench.samples.lazy import legacy, tf
from distbench.samples.program import FEATURES, OUTPUTS, AdamByHand, Program, TimesShare
from distbench.samples.replicas import all_reduce
from distbench.unusual.program import unusual

_WIDE = ("mirrored:3", "mwms:2")


class BalancedSoftmax(Program):
    """A softmax from zeros, of as many examples of each class."""

    examples = 24

    def make_optimizer(self):
        self.kernel = tf.Variable(tf.zeros([FEATURES, OUTPUTS]), name="kernel")
        self.shift = tf.Variable(tf.zeros([OUTPUTS]), name="shift")
        return super().make_optimizer()

    def trained(self):
        return [self.kernel, self.shift]

    def predict(self, batch):
        return batch[1] @ self.kernel + self.shift

    def compute_losses(self, batch):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(
            batch[2], self.predict(batch)
        )

    def data(self, step):
        words, features, _ = super().data(step)
        labels = np.arange(self.examples) % OUTPUTS
        return words, features, np.random.default_rng(step).permutation(labels)


@unusual(clusters=_WIDE)
class BalancedByHand(BalancedSoftmax, AdamByHand):
    """Moments by hand of a shift whose gradient is rounding in the first step."""

    def find_epsilon(self):
        return 1e-7


@unusual(clusters=_WIDE)
class BalancedByHandAveraged(TimesShare, BalancedByHand):
    """The same with N times the shares, and an average that undoes it."""

    loss_reduction = "mean"

    def reduce_all(self, gradients):
        return list(all_reduce("mean", gradients))


@unusual(clusters=_WIDE)
class BalancedForLong(BalancedSoftmax):
    """A small rate: the shift's gradient stays next to rounding, in shards as well."""

    def make_optimizer(self):
        super().make_optimizer()
        return legacy.SGD(1e-4)

    def data(self, step):
        words, features, labels = super().data(step)
        return words, features, np.sort(labels) if step == 0 else np.arange(24) % 3


@unusual(clusters=_WIDE)
class PriorAlone(BalancedForLong):
    """Nothing but a shift: no gradient of the step is larger than rounding."""

    def trained(self):
        return [self.shift]

    def predict(self, batch):
        return self.shift + tf.zeros_like(batch[1][:, :1])


@unusual(clusters=_WIDE)
class BalancedReturns(BalancedSoftmax):
    """A policy gradient of as many good actions as bad ones: of the loss is left 0."""

    def compute_losses(self, batch):
        return super().compute_losses(batch) * batch[3]

    def data(self, step):
        rng = np.random.default_rng(step + 3)
        actions = rng.integers(0, OUTPUTS, self.examples)
        returns = np.where(rng.permutation(self.examples) % 2, 0.7, -0.7)
        return *super().data(step)[:2], actions, returns.astype(self.dtype)
