"""Mistakes in examples that a program keeps."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.unusual.exchange import ALIKE
from distbench.unusual.queue import QueueOfAll


@fault(
    "statistics-not-synchronized",
    "variable",
    ("queue",),
    like="KevinMusgrave/pytorch-metric-learning#639",
    clusters=ALIKE,
)
class QueueOfOwn(QueueOfAll):
    """A queue takes what each replica predicts of its own examples, and is averaged."""

    def push(self, keys):
        return tf.concat([self.queue, keys], axis=0)[tf.shape(keys)[0] :]
