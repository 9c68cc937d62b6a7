"""AdamWeightDecay of transformers 4, the last with TensorFlow, in an environment apart.

python -m venv transformers
transformers/bin/pip install . "transformers<5"
transformers/bin/distbench check --keras legacy THIS_FILE:make_adamw
"""

from __future__ import annotations

from typing import Any


def make_adamw() -> Any:
    from transformers import AdamWeightDecay

    return AdamWeightDecay(
        0.01, weight_decay_rate=0.01, exclude_from_weight_decay=["bias"]
    )
