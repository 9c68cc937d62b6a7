"""Models of the size that people train, for scripts/benchmark.py.

To check one by hand: `distbench check scripts/benchmark_models.py:make_mobilenet`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from tf_keras import layers

_EXAMPLES = 16
_CLASSES = 10
_WORDS = 2000
_LENGTH = 32
_WIDTH = 128
_BLOCKS = 3


def make_transformer() -> Any:
    """A causal language model of 1.1 million parameters: three blocks, no dropout."""
    words = layers.Input((_LENGTH,), dtype="int32")
    found = layers.Embedding(_WORDS, _WIDTH)(words)
    for _ in range(_BLOCKS):
        normal = layers.LayerNormalization()(found)
        attention = layers.MultiHeadAttention(4, _WIDTH // 4)
        found = found + attention(normal, normal, use_causal_mask=True)
        wide = layers.Dense(4 * _WIDTH, activation="gelu")
        normal = layers.LayerNormalization()(found)
        found = found + layers.Dense(_WIDTH)(wide(normal))
    scores = layers.Dense(_WORDS)(layers.LayerNormalization()(found))
    model = tf_keras.Model(words, scores)
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf_keras.optimizers.Adam(1e-3), loss)
    return model


def draw_words(step: int) -> tuple[Any, Any]:
    """Words, int32 [examples, length], and the next one of each."""
    rng = np.random.default_rng(step)
    drawn = rng.integers(0, _WORDS, (_EXAMPLES, _LENGTH + 1)).astype("int32")
    return drawn[:, :-1], drawn[:, 1:]


def make_mobilenet() -> Any:
    """MobileNetV2 for small images: 2.3 million parameters, batch normalisation."""
    return _compile_mobilenet(tf_keras.optimizers.Adam(1e-3))


def make_clipped_mobilenet() -> Any:
    """The same with a mistake: each replica clips before the gradients are summed."""
    return _compile_mobilenet(_ClipsFirst(1e-3))


def _compile_mobilenet(optimizer: Any) -> Any:
    model = tf_keras.applications.MobileNetV2(
        weights=None, input_shape=(32, 32, 3), classes=_CLASSES
    )
    model.compile(optimizer, tf_keras.losses.SparseCategoricalCrossentropy())
    return model


class _ClipsFirst(tf_keras.optimizers.Adam):
    def aggregate_gradients(self, grads_and_vars: Any) -> Any:
        gradients, variables = zip(*grads_and_vars, strict=True)
        clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
        return super().aggregate_gradients(list(zip(clipped, variables, strict=True)))


def draw_images(step: int) -> tuple[Any, Any]:
    """Images, float32 [examples, 32, 32, 3], and the class of each."""
    rng = np.random.default_rng(step)
    images = rng.normal(size=(_EXAMPLES, 32, 32, 3)).astype("float32")
    return images, rng.integers(0, _CLASSES, _EXAMPLES)


make_transformer.data = draw_words  # type: ignore[attr-defined]
make_mobilenet.data = draw_images  # type: ignore[attr-defined]
make_clipped_mobilenet.data = draw_images  # type: ignore[attr-defined]
