"""Replicas that vote on a step that each of them made of its own gradient."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.program import TRAINED
from distbench.samples.replicas import count_replicas
from distbench.unusual.by_hand import SignsBesideDecayByHand


@fault(
    "nonlinear-before-reduction",
    "variable",
    TRAINED,
    like="horovod/horovod#3786",
    clusters=("mirrored:2", "mwms:3"),
)
class SignsOutvotedBesideDecay(SignsBesideDecayByHand):
    """Each replica takes N times its own gradient for the sum; most of them win."""

    def choose(self, moved, gradient):
        own = tf.sign(moved + count_replicas() * gradient)
        return tf.sign(self.reduce(own))
