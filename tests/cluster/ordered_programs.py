"""Programs that take their examples in the order of the batch alone."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras

_EXAMPLES = 8


class InOrderOfTime:
    """Correct: it refuses examples that do not come in the order of their times."""

    def build(self, strategy):
        start = np.random.default_rng(0).normal(size=(3, 2)).astype("float32")
        self._kernel = tf.Variable(start, name="kernel")
        self._optimizer = tf_keras.optimizers.legacy.SGD(0.1, momentum=0.5)

    def variables(self):
        return [self._kernel]

    def optimizer(self):
        return self._optimizer

    def data(self, step):
        rng = np.random.default_rng(step)
        features = rng.normal(size=(_EXAMPLES, 3)).astype("float32")
        return features, np.arange(_EXAMPLES, dtype="int32")

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.compute_loss(*batch)
        gradient = tape.gradient(loss, self._kernel)
        self._optimizer.apply_gradients([(gradient, self._kernel)])
        return loss

    def compute_loss(self, features, times):
        tf.debugging.assert_non_negative(times[1:] - times[:-1])
        return tf.reduce_sum((features @ self._kernel - 1) ** 2) / self.examples(times)

    def examples(self, times):
        return _EXAMPLES


class DividesByOwnExamples(InOrderOfTime):
    """Wrong: the mean of the replica's own examples."""

    def examples(self, times):
        return tf.cast(tf.size(times), tf.float32)


class TextsOfTwoWords(InOrderOfTime):
    """Correct: rows of words, of which those of a text stand together.

    A text that is cut in two counts as two, so shards alone make up nothing.
    """

    def compute_loss(self, features, times):
        texts = (times - times[0]) // 2
        errors = tf.math.segment_sum(features @ self._kernel - 1, texts)
        return tf.reduce_sum(errors**2) / _EXAMPLES


class ShiftsBeforeBatchStatistics(InOrderOfTime):
    """Correct: it knows no order, but the gradient of the shift is rounding alone.

    What is added to all outputs of a batch is subtracted again with their mean.
    """

    def build(self, strategy):
        super().build(strategy)
        self._shift = tf.Variable([0.5, -0.25], name="shift")

    def variables(self):
        return [self._kernel, self._shift]

    def replica_step(self, batch):
        features, _ = batch
        with tf.GradientTape() as tape:
            outputs = tf.tanh(features) @ self._kernel + self._shift
            mean, variance = tf.nn.moments(outputs, axes=[0])
            scaled = (outputs - mean) * tf.math.rsqrt(variance + 1e-3)
            loss = tf.reduce_sum((scaled - features[:, :2]) ** 2) / _EXAMPLES
        gradients = tape.gradient(loss, self.variables())
        self._optimizer.apply_gradients(zip(gradients, self.variables(), strict=True))
        return loss
