"""The optimizer of gradient-accumulator, in an environment of its own.

The package pins numpy<=1.23.2, which no TensorFlow of today takes; it imports without.
"""

from __future__ import annotations

from typing import Any

PIP_INSTALL = (".", "--no-deps gradient-accumulator==0.5.2")
"""Arguments of each `pip install`, in the checkout."""

KERAS = "legacy"
"""What `distbench check --keras` needs."""


def make_accumulated_sgd() -> Any:
    """Applies the mean of each two gradients; makes its counter while tracing."""
    import tf_keras
    from gradient_accumulator import GradientAccumulateOptimizer

    return GradientAccumulateOptimizer(
        optimizer=tf_keras.optimizers.legacy.SGD(0.125), accum_steps=2
    )
