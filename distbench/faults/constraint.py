"""Constraints on variables that the cluster forgets."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.program import HEAD, Constrained
from distbench.samples.replicas import count_replicas


@fault(
    "hyperparameter-differs", "variable", (HEAD,), like="tensorflow/tensorflow#37834"
)
class ConstraintForgotten(Constrained):
    """The variable is kept positive on one device alone."""

    def constrain(self, copy):
        if count_replicas() == 1:
            super().constrain(copy)


@fault(
    "hyperparameter-differs", "variable", (HEAD,), like="tensorflow/tensorflow#37834"
)
class NormConstraintForgotten(Constrained):
    """The columns of a variable are held to a norm on one device alone."""

    def constrain(self, copy):
        if count_replicas() == 1:
            copy.assign(tf.clip_by_norm(copy, 0.5, axes=[0]))
