"""Optimizers of keras-adamw, in an environment of their own.

Its classes build on the copy of Keras inside TensorFlow (`tensorflow.python.keras`),
whose optimizers look their slots up by an attribute that TensorFlow has moved from
variables to handles: every one with a slot fails on the second replica of a process.
"""

from __future__ import annotations

import os
from typing import Any

PIP_INSTALL = (". keras-adamw==1.38",)
"""Arguments of each `pip install`, in the checkout."""


def make_adamw(**options: Any) -> Any:
    return _import().AdamW(learning_rate=0.01, **options)


def make_nadamw() -> Any:
    return _import().NadamW(learning_rate=0.01)


def make_stock_adam() -> Any:
    """Adam of that copy of Keras, to tell whose fault it is: it fails alike."""
    from tensorflow.python.keras.optimizer_v2 import adam

    return adam.Adam(learning_rate=0.01)


def _import() -> Any:
    # Read when the package is imported; without it, it looks for Keras 2.2.
    os.environ["TF_KERAS"] = "1"
    import keras_adamw

    return keras_adamw
