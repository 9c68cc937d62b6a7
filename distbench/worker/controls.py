"""Stock optimizers: what shows the same finding with these is not the subject's."""

from __future__ import annotations

from typing import Any


def make_legacy_sgd() -> Any:
    """Plain SGD of the legacy family, with a rate that keeps dyadic numbers dyadic."""
    import tf_keras

    return tf_keras.optimizers.legacy.SGD(learning_rate=0.125)
