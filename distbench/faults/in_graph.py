"""Mistakes in steps that differentiate by `tf.gradients`, without a tape."""

from __future__ import annotations

from distbench.faults.fault import EVERYWHERE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import TRAINED, OwnMeans
from distbench.unusual.in_graph import DifferentiatedInGraph as _InGraph

_CLIP = "clip-before-reduction"
_PHASE = "reduced_gradient"


@fault(
    _CLIP,
    _PHASE,
    TRAINED,
    like="LeelaChessZero/lczero-training#162",
    clusters=EVERYWHERE,
)
class ElementsClippedInGraph(_InGraph):
    """Each replica clips the elements of its own gradients, which no tape gave."""

    def transform(self, gradients):
        dense = map(tf.convert_to_tensor, gradients)
        return [tf.clip_by_value(gradient, -0.02, 0.02) for gradient in dense]


@fault(
    _CLIP, _PHASE, TRAINED, like="tensorflow/tensorflow#33929", clusters=("mirrored:2",)
)
class EachNormClippedInGraph(_InGraph):
    """Each replica clips the norm of each of its gradients, which no tape gave."""

    def transform(self, gradients):
        return [tf.clip_by_norm(gradient, 0.02) for gradient in gradients]


@fault(
    "loss-not-scaled",
    "loss",
    ("",),
    like="keras-team/keras#19891",
    clusters=("mirrored:2",),
)
class LossNotScaledInGraph(OwnMeans, _InGraph):
    """A mean over the own examples, which is summed, and no tape."""
