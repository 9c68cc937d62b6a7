"""Optimizers of tf-models-official, in an environment of their own.

The package pins tensorflow~=2.18.0; without its dependencies the optimizers import on
2.21 too.
"""

from __future__ import annotations

from typing import Any

PIP_INSTALL = (
    ". gin-config pyyaml",
    "--no-deps tf-models-official==2.18.0",
)
"""Arguments of each `pip install`, in the checkout."""


def make_adamw() -> Any:
    """Clips by global norm before the gradients are summed, by default and on purpose.

    Its source says so: to keep what it computed under TensorFlow 1. A replica's norm
    is not the norm of the sum, so the result depends on the number of replicas.
    """
    from official.modeling.optimization.legacy_adamw import AdamWeightDecay

    return AdamWeightDecay(
        0.01, weight_decay_rate=0.01, exclude_from_weight_decay=["bias"]
    )


def make_adamw_without_clipping(**options: Any) -> Any:
    from official.modeling.optimization.legacy_adamw import AdamWeightDecay

    return AdamWeightDecay(
        0.01, weight_decay_rate=0.01, gradient_clip_norm=0.0, **options
    )


def make_lars() -> Any:
    """Has no sparse rule."""
    from official.modeling.optimization.lars import LARS

    return LARS(0.01, exclude_from_weight_decay=["bias"])


def make_lamb() -> Any:
    from official.modeling.optimization.lamb import LAMB

    return LAMB(0.01)
