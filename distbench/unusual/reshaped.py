"""Correct programs with state that has another shape on a cluster."""

from __future__ import annotations

import numpy as np

from distbench.samples.lazy import tf
from distbench.samples.program import ByHand, Program
from distbench.samples.replicas import (
    all_reduce,
    count_replicas,
    find_replica,
    gather,
    update,
)
from distbench.unusual.local_state import make_local
from distbench.unusual.program import unusual


@unusual()
class LossOfEachReplica(Program):
    """The loss of each replica is kept in a row of its own, and trains nothing."""

    def build(self, strategy):
        super().build(strategy)
        rows = np.zeros(count_replicas(), self.dtype)
        self.shown = tf.Variable(rows, name="shown", trainable=False)

    def variables(self):
        return [*self.trained(), self.shown]

    def report(self, loss):
        place = tf.one_hot(find_replica(), count_replicas(), dtype=loss.dtype)
        update(
            self.shown, lambda copy, rows: copy.assign(rows), self.join(loss * place)
        )
        return loss

    def join(self, rows):
        """What all replicas show."""
        return all_reduce("sum", rows)


@unusual(clusters=("mirrored:2", "mwms:3"))
class MomentumInParts(ByHand):
    """Each replica keeps the momentum of a part, and all gather steps, as in ZeRO."""

    def build(self, strategy):
        super().build(strategy)
        self.sizes = [int(np.prod(v.shape)) for v in self.trained()]
        self.length = -(-sum(self.sizes) // count_replicas())
        self.moved = make_local("moved", np.zeros(self.length, self.dtype))

    def variables(self):
        return [*self.trained(), self.moved]

    def apply(self, gradients):
        flat = [tf.reshape(tf.convert_to_tensor(g), [-1]) for g in gradients]
        total = self.reduce(tf.concat(flat, axis=0))
        padded = tf.pad(total, [[0, count_replicas() * self.length - sum(self.sizes)]])
        part = padded[find_replica() * self.length :][: self.length]
        moved = 0.75 * self.moved + part
        self.moved.assign(moved)
        steps = tf.split(gather(moved)[: sum(self.sizes)], self.sizes)
        for variable, step in zip(self.trained(), steps, strict=True):
            self.update(variable, tf.reshape(step, variable.shape))
