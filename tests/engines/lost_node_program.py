"""A correct train program that kills an agent, as a node does that is lost."""

from __future__ import annotations

import json
import os

import numpy as np
import psutil
import tensorflow as tf
import tf_keras


class LosesANode:
    """Worker 1 of three ends its own agent while it is built."""

    def build(self, strategy):
        task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {})
        if (strategy.num_replicas_in_sync, task.get("index")) == (3, 1):
            # The task's fork server is the agent's child.
            psutil.Process().parents()[1].kill()
        self.kernel = tf.Variable(np.ones((4, 3), "float32"), name="kernel")
        self._optimizer = tf_keras.optimizers.legacy.SGD(0.1)

    def variables(self):
        return [self.kernel]

    def optimizer(self):
        return self._optimizer

    def data(self, step):
        rng = np.random.default_rng(step)
        return rng.normal(size=(12, 4)).astype("float32")

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((batch @ self.kernel) ** 2) / 12
        gradients = tape.gradient(loss, [self.kernel])
        self._optimizer.apply_gradients(zip(gradients, [self.kernel], strict=True))
        return loss
