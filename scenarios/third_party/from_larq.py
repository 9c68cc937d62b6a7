"""Optimizers of larq for binary networks, in an environment of their own.

larq wants numpy<2, which TensorFlow takes on Python 3.12 and older, and Keras 2 as
`tf.keras`. Neither optimizer takes sparse gradients.
"""

from __future__ import annotations

from typing import Any

PIP_INSTALL = (". larq==0.14.0",)
"""Arguments of each `pip install`, in the checkout."""

KERAS = "legacy"
"""What `distbench check --keras` needs."""


def make_bop(**options: Any) -> Any:
    """Flips the sign of a weight when the averaged gradient passes a threshold."""
    import larq

    return larq.optimizers.Bop(threshold=1e-6, gamma=0.1, **options)


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
