"""Clipping of gradients by parts: units of layers, or groups of variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distbench.samples.lazy import tf

_LEAST = 1e-3
"""Norm that weights count for at least, so that what starts at 0 can leave it."""


def clip_units(gradient: Any, variable: Any, share: float) -> Any:
    """Limit the gradient of each unit to a share of the norm of its weights.

    A unit is what the last axis counts; a vector is one. After Brock et al. 2021,
    *High-Performance Large-Scale Image Recognition Without Normalization*, equation 3.

    Args:
        gradient: Dense, of the variable's shape.
        variable: What is trained.
        share: λ of the paper.
    """
    limit = share * tf.maximum(_measure_units(variable), _LEAST)
    size = tf.maximum(_measure_units(gradient), 1e-12)
    return gradient * tf.minimum(1.0, limit / size)


def clip_groups(gradients: Sequence[Any]) -> list[Any]:
    """The first two gradients by their joint norm, and the others by theirs."""
    first, others = gradients[:2], gradients[2:]
    clipped, _ = tf.clip_by_global_norm(first, 0.02)
    more, _ = tf.clip_by_global_norm(others, 0.03)
    return [*clipped, *more]


def _measure_units(value: Any) -> Any:
    axes = list(range(len(value.shape) - 1)) or None
    return tf.sqrt(tf.reduce_sum(value * value, axis=axes, keepdims=True))
