"""Correct sums by hand of what replicas do not keep back of their own gradients."""

from __future__ import annotations

import numpy as np

from distbench.samples.lazy import tf
from distbench.samples.program import FEATURES, ByHand, OwnReduction
from distbench.samples.replicas import all_reduce, make_zeros
from distbench.unusual.grouping import BatchStatistics
from distbench.unusual.local_state import ErrorFeedback, make_local
from distbench.unusual.program import unusual


@unusual()
class RowsKeptBackByHand(ByHand, ErrorFeedback):
    """Every second row is sent and summed by hand; the rest is in the next step."""


@unusual(clusters=("mirrored:2", "mirrored:3", "mwms:2"))
class RowsKeptBackUnderStatistics(BatchStatistics, RowsKeptBackByHand):
    """Such rows, under batch statistics: no one device keeps what the shards do."""


@unusual(clusters=("mirrored:2",))
class RowsKeptBackBesideOwnMean(RowsKeptBackUnderStatistics):
    """Beside what is kept back there is a moving mean of the replica's own examples."""

    def build(self, strategy):
        super().build(strategy)
        self.moving = make_local("moving", np.zeros(FEATURES, self.dtype), "MEAN")

    def variables(self):
        return [*super().variables(), self.moving]

    def compute_losses(self, batch):
        mean = tf.reduce_mean(batch[1], axis=0)
        self.moving.assign(0.9 * self.moving + 0.1 * mean)
        return super().compute_losses(batch)


@unusual()
class LargestOfSum(ErrorFeedback):
    """Replicas send the half that is largest in the sum of all, and keep the rest."""

    def transform(self, gradients):
        handed = []
        for kept, gradient in zip(self.kept, gradients, strict=True):
            own = kept + tf.convert_to_tensor(gradient)
            total = all_reduce("sum", own)
            flat = tf.reshape(tf.abs(total), [-1])
            least = tf.math.top_k(flat, flat.shape[0] // 2).values[-1]
            sent = tf.cast(tf.abs(total) >= least, own.dtype)
            kept.assign((1 - sent) * self.take_rest(own, total))
            handed.append(sent * own)
        return handed

    def take_rest(self, own, total):
        """What is kept where nothing is sent."""
        del total
        return own


@unusual(clusters=("mirrored:2", "mwms:3"))
class LargestOfSumUnderStatistics(LargestOfSum, RowsKeptBackUnderStatistics):
    """The same under batch statistics."""


@unusual(clusters=("mirrored:2", "mwms:3"))
class SignsAsLargeAsSum(OwnReduction):
    """Signs of the sum, as large as it is on average; it takes up what that leaves."""

    def build(self, strategy):
        super().build(strategy)
        self.rest = make_zeros(self.trained(), "rest", "ONLY_FIRST_REPLICA")

    def variables(self):
        return [*self.trained(), *self.rest]

    def reduce(self, gradients):
        made = []
        for rest, gradient in zip(self.rest, gradients, strict=True):
            own = tf.convert_to_tensor(gradient)
            total = rest + all_reduce("sum", own)
            made.append(self.measure(own, total) * tf.sign(total))
            rest.assign(total - made[-1])
        return made

    def measure(self, own, total):
        """How large all signs are."""
        del own
        return tf.reduce_mean(tf.abs(total))
