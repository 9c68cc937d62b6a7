"""Correct steps that change what flows back through a layer."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.unusual.program import unusual


@unusual()
class ElementsClippedOnTheWayBack(Program):
    """What flows back through the hidden layer is clipped, element by element."""

    def predict(self, batch):
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        hidden = embedded @ self.first + features @ self.second + self.bias

        @tf.custom_gradient
        def pass_on(x):
            return tf.identity(x), self.limit

        return tf.tanh(pass_on(hidden)) @ self.head

    def limit(self, upstream):
        """What goes on to the layers before, [examples, units]."""
        return tf.clip_by_value(upstream, -0.01, 0.01)
