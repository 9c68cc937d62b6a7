"""A loss scale of Keras 3."""

from __future__ import annotations

from typing import Any

import keras


def make_scaled() -> Any:
    """Its own, around a stock optimizer."""
    inner = keras.optimizers.SGD(0.125)
    return keras.optimizers.LossScaleOptimizer(inner, initial_scale=256.0)
