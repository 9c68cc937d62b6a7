"""Optimizers of larq 0.14 for binary networks, in an environment of their own.

    python -m venv larq
    larq/bin/pip install . larq==0.14.0
    larq/bin/distbench check --keras legacy THIS_FILE:make_bop

larq wants numpy<2, which TensorFlow takes on Python 3.12 and older, and Keras 2 as
`tf.keras`, hence `--keras legacy`. Neither optimizer takes sparse gradients.
"""

from __future__ import annotations

from typing import Any


def make_bop() -> Any:
    """Flips the sign of a weight when the averaged gradient passes a threshold."""
    import larq

    return larq.optimizers.Bop(threshold=1e-6, gamma=0.1)


def make_case_optimizer() -> Any:
    """Bop for kernels and Adam for all else; see larq/larq#629 for its `iterations`."""
    import larq
    import tf_keras

    return larq.optimizers.CaseOptimizer(
        (_is_kernel, larq.optimizers.Bop(threshold=1e-6, gamma=0.1)),
        default_optimizer=tf_keras.optimizers.legacy.Adam(0.01),
    )


def _is_kernel(variable: Any) -> bool:
    return "kernel" in variable.name
