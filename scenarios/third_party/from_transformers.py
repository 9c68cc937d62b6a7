"""AdamWeightDecay of transformers 4, the last with TensorFlow, in an environment apart.

It imports Keras 2 as `tf_keras`, or as `tf.keras` where that is Keras 2.
"""

from __future__ import annotations

from typing import Any

PIP_INSTALL = ('. "transformers<5"',)
"""Arguments of each `pip install`, in the checkout."""

KERAS = "legacy"
"""What `distbench check --keras` needs."""


def make_adamw(**options: Any) -> Any:
    from transformers import AdamWeightDecay

    return AdamWeightDecay(
        0.01, weight_decay_rate=0.01, exclude_from_weight_decay=["bias"], **options
    )
