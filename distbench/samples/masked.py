"""Gradients of which some elements are left out by chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distbench.samples.lazy import tf


def mask_gradients(gradients: Sequence[Any], seed: int) -> list[Any]:
    """Leave out half of the elements, drawn from a seed."""
    dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
    kept = [
        tf.random.stateless_uniform(gradient.shape, [seed, place]) < 0.5
        for place, gradient in enumerate(dense)
    ]
    return [tf.where(k, g, 0.0) for k, g in zip(kept, dense, strict=True)]
