"""Stock optimizers and models that are right, where TensorFlow or Keras is not.

Each shows the fault that the file of docs/upstream in its docstring shows alone.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras


def make_clipped() -> Any:
    """keras3_clips_before_the_sum."""
    return keras.optimizers.SGD(0.125, global_clipnorm=0.125)


def make_accumulating() -> Any:
    """keras3_conditional_updates_raise."""
    return keras.optimizers.SGD(0.125, gradient_accumulation_steps=2)


def make_scaled() -> Any:
    """keras3_loss_scale_asks_one_replica."""
    inner = keras.optimizers.SGD(0.125)
    return keras.optimizers.LossScaleOptimizer(inner)


def make_adam() -> Any:
    """keras3_repeated_rows."""
    return keras.optimizers.Adam(0.125)


def make_clipped_rows() -> Any:
    """clips_ignore_repeated_rows."""
    return tf_keras.optimizers.legacy.SGD(0.125, clipnorm=0.125)


def make_v1_sgd() -> Any:
    """v1_updates_once_per_replica."""
    return tf.compat.v1.train.GradientDescentOptimizer(0.125)


def make_muon() -> Any:
    """keras3_muon_decays_on_each_replica."""
    return keras.optimizers.Muon(0.125, weight_decay=0.5)


def make_normalised() -> Any:
    """keras3_batch_statistics_drift_apart."""
    return _make_model(keras.layers.BatchNormalization(), loss="mse")


def make_float8() -> Any:
    """keras3_float8_scales_drift_apart."""
    layer = keras.layers.Dense(4, dtype="float8_from_float32")
    return _make_model(layer, loss="mse")


def make_dropping() -> Any:
    """keras3_replicas_draw_alike."""
    return _make_model(keras.layers.Dropout(0.5), loss="mse")


def make_dense() -> Any:
    """keras3_fit_raises_on_workers."""
    return _make_model(loss="mse")


def make_nadam() -> Any:
    """keras2_nadam_counts_while_tracing."""
    layers = [tf_keras.layers.Input((3,)), tf_keras.layers.Dense(2)]
    model = tf_keras.Sequential(layers)
    model.compile(tf_keras.optimizers.Nadam(0.125), "mse")
    return model


def make_for_last_batch() -> Any:
    """fit_weighs_shards_alike."""
    layers = [tf_keras.layers.Input((3,)), tf_keras.layers.Dense(2)]
    model = tf_keras.Sequential(layers)
    model.compile(tf_keras.optimizers.SGD(0.125), "mse")
    return model


def make_scalar_loss() -> Any:
    """keras3_scalar_loss_is_not_divided."""
    return _make_model(loss=_compute_mean)


def make_masked() -> Any:
    """losses_divide_by_each_shards_mask."""
    layers = [keras.layers.Embedding(9, 3, mask_zero=True), keras.layers.Dense(2)]
    model = keras.Sequential([keras.layers.Input((5,)), *layers])
    model.compile(keras.optimizers.SGD(0.125), "mse")
    return model


def make_sharing_losses() -> Any:
    """keras3_replicas_share_their_losses."""
    layers = [
        keras.layers.Dense(4, activity_regularizer="l2"),
        keras.layers.BatchNormalization(synchronized=True),
    ]
    return _make_model(*layers, loss="mse")


def make_several_steps() -> Any:
    """keras3_steps_at_once_raise."""
    model = _make_model(loss="mse")
    sgd = keras.optimizers.SGD(0.125)
    model.compile(sgd, "mse", jit_compile=False, steps_per_execution=3)
    return model


def _compute_mean(true: Any, predicted: Any) -> Any:
    return keras.ops.mean((true - predicted) ** 2)


def _make_model(*layers: Any, loss: Any) -> Any:
    inputs = keras.layers.Input((3,))
    model = keras.Sequential([inputs, *layers, keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.125), loss)
    return model


def data(step: int) -> tuple[Any, Any]:
    """Inputs [8, 3] and targets [8, 2] of the models."""
    rng = np.random.default_rng(step)
    shapes = ((8, 3), (8, 2))
    inputs, targets = (rng.normal(size=shape).astype("float32") for shape in shapes)
    return inputs, targets


def _take_seven(step: int) -> tuple[Any, Any]:
    inputs, targets = data(step)
    return inputs[:7], targets[:7]


def _take_words(step: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(step)
    words = rng.integers(1, 9, size=(8, 5))
    words[np.arange(5) >= np.arange(1, 9)[:, None]] = 0
    return words, rng.normal(size=(8, 5, 2)).astype("float32")


make_masked.data = _take_words  # type: ignore[attr-defined]  # a function's own
make_for_last_batch.data = _take_seven  # type: ignore[attr-defined]  # a function's own
