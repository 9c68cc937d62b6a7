"""The optimizer of gradient-accumulator 0.5.2, in an environment of its own.

    python -m venv accumulator
    accumulator/bin/pip install .
    accumulator/bin/pip install --no-deps gradient-accumulator==0.5.2
    accumulator/bin/distbench check --keras legacy THIS_FILE:make_accumulated_sgd

The package pins numpy<=1.23.2, which no TensorFlow of today takes; it imports without.
"""

from __future__ import annotations

from typing import Any


def make_accumulated_sgd() -> Any:
    """Applies the mean of each two gradients; makes its counter while tracing."""
    import tf_keras
    from gradient_accumulator import GradientAccumulateOptimizer

    return GradientAccumulateOptimizer(
        optimizer=tf_keras.optimizers.legacy.SGD(0.125), accum_steps=2
    )
