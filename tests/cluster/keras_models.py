"""Compiled Keras models as users bring them; the tests check them by their targets."""

from __future__ import annotations

import importlib
import json
import os
from typing import Any

import numpy as np


def draw(step: int, *shape: int) -> np.ndarray:
    return np.random.default_rng((step, *shape)).normal(size=shape).astype("float32")


def data(step: int) -> Any:
    """What `fit` takes; nine examples, which two replicas cannot share evenly."""
    return draw(step, 9, 3), draw(step, 9, 1)


def make_dense() -> Any:
    """Two layers, Adam and a metric, in Keras 2."""
    import tf_keras as keras

    layers = [keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((3,)), *layers])
    model.compile(keras.optimizers.Adam(0.1), "mse", metrics=["mae"])
    return model


def make_late() -> Any:
    """Layers without an input shape, and a legacy optimizer."""
    import tf_keras as keras

    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile(keras.optimizers.legacy.SGD(0.1, momentum=0.9), "mse")
    return model


def make_half() -> Any:
    """A layer in float16, and a loss that shows no rounding of the variables."""
    import tf_keras as keras

    hidden = keras.layers.Dense(8, "tanh", dtype="mixed_float16")
    layers = [hidden, keras.layers.Dense(1, dtype="float32")]
    model = keras.Sequential([keras.layers.Input((4,)), *layers])
    rule = keras.optimizers.SGD(0.001)
    model.compile(keras.mixed_precision.LossScaleOptimizer(rule), "mse")
    return model


def draw_wide(step: int) -> Any:
    """Targets whose losses a shard of 8 examples alone may take beyond float16."""
    return draw(step, 16, 4), 9 * draw(step, 16, 1)


make_half.data = draw_wide  # type: ignore[attr-defined]


def make_keras3_half() -> Any:
    """The same in Keras 3, whose loss scale asks the gradients of each replica."""
    import keras

    hidden = keras.layers.Dense(16, "relu", dtype="mixed_float16")
    output = keras.layers.Dense(1, dtype="mixed_float16")
    wide = keras.layers.Activation("linear", dtype="float32")
    model = keras.Sequential([keras.layers.Input((8,)), hidden, output, wide])
    rule = keras.optimizers.Adam(1e-3)
    model.compile(keras.optimizers.LossScaleOptimizer(rule), "mse")
    return model


def draw_near(step: int) -> Any:
    """Targets whose losses the whole batch alone takes beyond float16."""
    rng = np.random.default_rng(step)
    features = rng.normal(size=(16, 8)).astype("float32")
    return features, 3 * rng.normal(size=(16, 1)).astype("float32")


make_keras3_half.data = draw_near  # type: ignore[attr-defined]


def make_several_steps() -> Any:
    """Steps that Keras 2 is to take several of at once."""
    import tf_keras as keras

    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.1), "mse", steps_per_execution=3)
    return model


def make_rate_of_workers() -> Any:
    """The learning rate grows with the workers, each of which trains by itself."""
    import tf_keras as keras

    tasks = json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {})
    rate = 0.1 * len(tasks.get("worker", [1]))
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate), "mse")
    return model


def make_keras3() -> Any:
    """Two layers with a penalty, and what makes Keras 3 special."""
    import keras

    layers = [keras.layers.Dense(4, kernel_regularizer="l2"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((3,)), *layers])
    sgd = keras.optimizers.SGD(0.05, use_ema=True, weight_decay=0.1)
    model.compile(sgd, "mse", metrics=["mae"])
    return model


def make_keras3_several_steps() -> Any:
    """Steps that Keras 3 is to take several of at once, which raises on two devices."""
    import keras

    layers = [keras.layers.Input((3,)), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    nadam = keras.optimizers.Nadam(0.1)
    model.compile(nadam, "mse", jit_compile=False, steps_per_execution=3)
    return model


class ManyInputs:
    """Named inputs, two losses, weights of examples; brings its own data."""

    def __init__(self, package: str) -> None:
        self._package = package

    def __call__(self) -> Any:
        keras = importlib.import_module(self._package)
        left, right = (keras.layers.Input((n,), name=f"in_{n}") for n in (3, 2))
        both = keras.layers.Concatenate()([left, right])
        hidden = keras.layers.Dense(4, activation="tanh")(both)
        outputs = [keras.layers.Dense(1, name=name)(hidden) for name in ("up", "down")]
        model = keras.Model({"in_3": left, "in_2": right}, outputs)
        model.compile(
            keras.optimizers.RMSprop(0.05),
            ["mse", "mae"],
            loss_weights=[1.0, 0.5],
            weighted_metrics=[["mae"], ["mse"]],
        )
        return model

    def data(self, step: int) -> Any:
        weights = np.random.default_rng(step).uniform(0.5, 2, size=8).astype("float32")
        targets = [draw(step, 8, 1), draw(step + 100, 8, 1)]
        inputs = {"in_3": draw(step, 8, 3), "in_2": draw(step, 8, 2)}
        return inputs, targets, (weights, np.ones(8, "float32"))


many_inputs = ManyInputs("tf_keras")
many_inputs_keras3 = ManyInputs("keras")


def make_eager() -> Any:
    """A model whose step is not traced."""
    model = make_dense()
    model.compile("sgd", "mse", run_eagerly=True)
    return model


class OneConstant:
    """Of two losses one is a number of Python's, which Keras 3 takes."""

    def __call__(self) -> Any:
        import keras

        inputs = keras.layers.Input((3,))
        outputs = [keras.layers.Dense(1, name=name)(inputs) for name in ("up", "down")]
        model = keras.Model(inputs, outputs)
        losses = ["mse", lambda *_: 0.0]
        model.compile(keras.optimizers.SGD(0.05), losses, jit_compile=False)
        return model

    def data(self, step: int) -> Any:
        return draw(step, 8, 3), [draw(step, 8, 1), draw(step + 100, 8, 1)]


one_constant = OneConstant()


class Masked:
    """A subclassed model of words with a mask, by whose number Keras divides."""

    __name__ = "Masked"

    def __call__(self) -> Any:
        import tf_keras as keras

        class Model(keras.Model):
            def __init__(self) -> None:
                super().__init__()
                self.words = keras.layers.Embedding(9, 3, mask_zero=True)
                self.out = keras.layers.Dense(1)

            def call(self, words: Any) -> Any:
                return self.out(self.words(words))

        model = Model()
        model.compile(keras.optimizers.SGD(0.1), "mse")
        return model

    def data(self, step: int) -> Any:
        words = np.random.default_rng(step).integers(1, 9, size=(8, 5))
        words[np.arange(5) >= np.arange(1, 9)[:, None]] = 0
        return words, draw(step, 8, 5, 1)


make_masked = Masked()


def make_losses_of_examples() -> Any:
    """A loss that nobody reduces: a tape takes the gradient of its sum."""
    import tf_keras as keras

    model = make_dense()
    model.compile("sgd", keras.losses.MeanSquaredError(reduction="none"))
    return model


def make_undescribed() -> Any:
    """Keras' own layers, and a learning rate and a loss that nobody can describe."""
    import functools

    import tf_keras as keras

    class Rate(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step: Any) -> Any:
            import tensorflow as tf

            return 0.1 / (1.0 + tf.cast(step, tf.float32))

    model = make_dense()
    loss = functools.partial(keras.losses.huber, delta=0.5)
    model.compile(keras.optimizers.SGD(Rate()), loss)
    return model


def make_summed_penalty() -> Any:
    """Adds a sum over the shard to a loss that Keras divides by the replicas."""
    import tensorflow as tf
    import tf_keras as keras

    class Summed(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            self.add_loss(0.1 * tf.reduce_sum(inputs**2))
            return inputs

    layers = [keras.layers.Dense(4), Summed(), keras.layers.Dense(2)]
    model = keras.Sequential([keras.layers.Input((3,)), *layers])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


def make_mean_penalty(*, again: bool = False) -> Any:
    """Adds a mean over the shard, of which Keras takes an N-th.

    Args:
        again: Whether the layer divides it by N as well.
    """
    import tensorflow as tf
    import tf_keras as keras

    class Averaged(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            replicas = tf.distribute.get_strategy().num_replicas_in_sync
            penalty = tf.reduce_mean(inputs**2)
            self.add_loss(penalty / replicas if again else penalty)
            return inputs

    layers = [keras.layers.Dense(4), Averaged(), keras.layers.Dense(2)]
    model = keras.Sequential([keras.layers.Input((3,)), *layers])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


def make_penalty_divided_twice() -> Any:
    """Divides a mean by N that Keras divides by it."""
    return make_mean_penalty(again=True)


def make_uncompiled() -> Any:
    """A model without an optimizer."""
    import keras

    return keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])


make_uncompiled.data = data


class Shrinking:
    """A model whose last of three batches has three examples in place of four."""

    __name__ = "Shrinking"

    def __call__(self) -> Any:
        return make_dense()

    def data(self, step: int) -> Any:
        examples = 3 if step == 2 else 4
        return draw(step, examples, 3), draw(step, examples, 1)


make_shrinking = Shrinking()
