"""Correct programs with variables whose gradient is their next value, as in float8."""

from __future__ import annotations

from distbench.samples.lazy import keras3, keras3_base, tf
from distbench.samples.program import Program
from distbench.samples.replicas import count_replicas, gather
from distbench.unusual.program import unusual

_LARGEST = 448.0
"""Of float8_e4m3fn."""


@unusual()
class Float8Activations(Program):
    """Activations in float8, on a scale whose gradient is its next value."""

    def build(self, strategy):
        self.amax = keras3_base.Variable(1.0, name="amax")
        self.amax.overwrite_with_gradient = True
        super().build(strategy)

    def make_optimizer(self):
        optimizer = keras3.SGD(0.05, momentum=0.9)
        optimizer.build(self.trained())
        return optimizer

    def trained(self):
        return [*super().trained(), self.amax]

    def predict(self, batch):
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        hidden = embedded @ self.first + features @ self.second + self.bias
        return self.round_to_float8(tf.tanh(hidden)) @ self.head

    def round_to_float8(self, values):
        """Values as float8 has them; the next step's scale is what they need now."""

        @tf.custom_gradient
        def pass_on(values, amax):
            places = tf.clip_by_value(values / amax, -1.0, 1.0) * _LARGEST
            narrow = tf.cast(places, tf.dtypes.experimental.float8_e4m3fn)

            def gradient(upstream):
                return upstream, self.join(tf.reduce_max(tf.abs(values)))

            return tf.cast(narrow, values.dtype) / _LARGEST * amax, gradient

        return pass_on(values, tf.convert_to_tensor(self.amax))

    def join(self, largest):
        """The largest that any replica has."""
        if count_replicas() == 1:
            return largest
        return tf.reduce_max(gather(largest[None]))
