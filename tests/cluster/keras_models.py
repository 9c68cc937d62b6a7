"""Compiled Keras models as users bring them; the tests check them by their targets."""

from __future__ import annotations

import importlib
import json
import os
from typing import Any

import numpy as np


def _draw(step: int, *shape: int) -> np.ndarray:
    return np.random.default_rng((step, *shape)).normal(size=shape).astype("float32")


def data(step: int) -> Any:
    """What `fit` takes; nine examples, which two replicas cannot share evenly."""
    return _draw(step, 9, 3), _draw(step, 9, 1)


def make_dense() -> Any:
    """Two layers, Adam and a metric, in Keras 2."""
    import tf_keras as keras

    layers = [keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((3,)), *layers])
    model.compile(keras.optimizers.Adam(0.1), "mse", metrics=["mae"])
    return model


def _make_compiled(package: str, loss: Any = "mse") -> Any:
    keras = importlib.import_module(package)
    layers = [keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((3,)), *layers])
    sgd = keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile(sgd, loss, metrics=["mae"], jit_compile=True)
    return model


def make_compiled() -> Any:
    """A step that XLA compiles, in Keras 2."""
    return _make_compiled("tf_keras")


def make_compiled_keras3() -> Any:
    """A step that XLA compiles, in Keras 3."""
    return _make_compiled("keras")


def make_compiled_wrong() -> Any:
    """The same with a mean that Keras 3 does not divide by the replicas."""

    def compute_mean(true: Any, predicted: Any) -> Any:
        import keras

        return keras.ops.mean((true - predicted) ** 2)

    return _make_compiled("keras", compute_mean)


def make_compiled_otherwise() -> Any:
    """A step that is another one where XLA compiles it."""
    import tf_keras as keras

    def step(model: Any, x: Any, y: Any) -> Any:
        import tensorflow as tf

        count = tf.distribute.get_strategy().num_replicas_in_sync
        part = 1.0 if model.jit_compile else 1.0 / count
        loss = _train(model, lambda: part * tf.reduce_mean((model(x) - y) ** 2))
        return {"loss": loss}

    model = _make_with_step(step)
    sgd = keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile(sgd, "mse", jit_compile=True)
    return model


def make_late() -> Any:
    """Layers without an input shape, and a legacy optimizer."""
    import tf_keras as keras

    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile(keras.optimizers.legacy.SGD(0.1, momentum=0.9), "mse")
    return model


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


def make_keras3_statistics() -> Any:
    """Batch normalisation of Keras 3, each of whose replicas keeps its own averages."""
    import keras

    layers = [keras.layers.Dense(4), keras.layers.BatchNormalization()]
    model = keras.Sequential([keras.layers.Input((3,)), *layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05), "mse")
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
        targets = [_draw(step, 8, 1), _draw(step + 100, 8, 1)]
        inputs = {"in_3": _draw(step, 8, 3), "in_2": _draw(step, 8, 2)}
        return inputs, targets, (weights, np.ones(8, "float32"))


many_inputs = ManyInputs("tf_keras")
many_inputs_keras3 = ManyInputs("keras")


def _make_with_step(step: Any) -> Any:
    import tf_keras as keras

    class Model(keras.Sequential):
        def train_step(self, batch: Any) -> Any:
            return step(self, *batch)

    layers = [keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]
    model = Model([keras.layers.Input((3,)), *layers])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    return model


def _train(model: Any, loss_of: Any, **options: Any) -> Any:
    import tensorflow as tf

    with tf.GradientTape() as tape:
        loss = loss_of()
    variables = model.trainable_variables
    pairs = zip(tape.gradient(loss, variables), variables, strict=True)
    model.optimizer.apply_gradients(pairs, **options)
    return loss


def make_share_of_mean() -> Any:
    """A step that computes its own loss: the mean over the shard, divided by N."""

    def step(model: Any, x: Any, y: Any) -> Any:
        import tensorflow as tf

        count = tf.distribute.get_strategy().num_replicas_in_sync
        return {
            "mine": _train(model, lambda: tf.reduce_mean((model(x) - y) ** 2) / count)
        }

    return _make_with_step(step)


def make_micro_steps() -> Any:
    """A step that takes the shard in two halves and averages their gradients."""

    def step(model: Any, x: Any, y: Any) -> Any:
        import tensorflow as tf

        half = tf.shape(x)[0] // 2
        variables = model.trainable_variables
        sums = [tf.zeros_like(v) for v in variables]
        for part in (slice(None, half), slice(half, None)):
            with tf.GradientTape() as tape:
                loss = model.compute_loss(x[part], y[part], model(x[part]))
            sums = [
                s + g / 2
                for s, g in zip(sums, tape.gradient(loss, variables), strict=True)
            ]
        model.optimizer.apply_gradients(zip(sums, variables, strict=True))
        return {}

    return _make_with_step(step)


def _make_keras3_with_step(divide: Any) -> Any:
    import keras

    class Model(keras.Sequential):
        def train_step(self, batch: Any) -> Any:
            import tensorflow as tf

            x, y = batch
            with tf.GradientTape() as tape:
                loss = divide(keras.ops.mean((self(x, training=True) - y) ** 2))
            variables = self.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            return {"loss": loss}

    layers = [keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]
    model = Model([keras.layers.Input((3,)), *layers])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    return model


def make_keras3_share_of_mean() -> Any:
    """A step of Keras 3 that divides the mean over its shard by the replicas."""

    def divide(loss: Any) -> Any:
        import tensorflow as tf

        return loss / tf.distribute.get_strategy().num_replicas_in_sync

    return _make_keras3_with_step(divide)


def make_keras3_mean_of_shard() -> Any:
    """The same without the division."""
    return _make_keras3_with_step(lambda loss: loss)


def _make_synchronised(package: str) -> Any:
    keras = importlib.import_module(package)
    layers = [keras.layers.Dense(4), keras.layers.BatchNormalization(synchronized=True)]
    model = keras.Sequential([keras.layers.Input((3,)), *layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


class BeforeStatistics:
    """A bias that batch normalisation takes away, and random numbers behind that.

    The gradient of the bias is rounding alone. There is much of it in the first shard,
    which varies little.
    """

    __name__ = "BeforeStatistics"

    def __call__(self) -> Any:
        import tf_keras as keras

        hidden = [keras.layers.Dense(6), keras.layers.BatchNormalization()]
        hidden += [keras.layers.Dropout(0.3), keras.layers.Dense(1)]
        model = keras.Sequential([keras.layers.Input((3,)), *hidden])
        model.compile(keras.optimizers.Adam(0.01), "mse")
        return model

    def data(self, step: int) -> Any:
        x, y = _draw(step, 8, 3), _draw(step + 100, 8, 1)
        x[:4] *= 0.01
        return x, y


make_before_statistics = BeforeStatistics()


def make_synchronised() -> Any:
    """Batch normalisation over all replicas in Keras 2."""
    return _make_synchronised("tf_keras")


def make_keras3_synchronised() -> Any:
    """The same in Keras 3, where each replica comes to the same averages."""
    return _make_synchronised("keras")


def make_keras3_own_statistics() -> Any:
    """A layer of the user's own that keeps what each replica's examples give."""
    import keras

    class Centred(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.mean = self.add_weight(shape=shape[1:], trainable=False, name="mean")

        def call(self, inputs: Any) -> Any:
            mean = keras.ops.mean(inputs, axis=0)
            self.mean.assign(0.9 * self.mean + 0.1 * mean)
            return inputs - mean

    layers = [keras.layers.Dense(4), Centred(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((3,)), *layers])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


def make_mean_of_shard() -> Any:
    """The same without the division, as in many a tutorial."""

    def step(model: Any, x: Any, y: Any) -> Any:
        import tensorflow as tf

        return {"loss": _train(model, lambda: tf.reduce_mean((model(x) - y) ** 2))}

    return _make_with_step(step)


def make_not_reduced() -> Any:
    """A step that tells the optimizer not to sum, and does not sum itself."""

    def step(model: Any, x: Any, y: Any) -> Any:
        def compute() -> Any:
            return model.compute_loss(x, y, model(x))

        loss = _train(model, compute, skip_gradients_aggregation=True)
        return {"loss": loss}

    return _make_with_step(step)


def make_own_metric_wrong() -> Any:
    """A metric to which every shard adds the weight of the global batch."""
    import tf_keras as keras

    metric = None

    def step(model: Any, x: Any, y: Any) -> Any:
        import tensorflow as tf

        loss = _train(model, lambda: model.compute_loss(x, y, model(x)))
        count = tf.distribute.get_strategy().num_replicas_in_sync
        metric.update_state(loss, sample_weight=tf.cast(count, tf.float32))
        return {"mine": metric.result()}

    model = _make_with_step(step)
    metric = model.own = keras.metrics.Mean(name="own")
    return model


def make_adversaries() -> Any:
    """Two networks, each with an optimizer of its own."""
    import tf_keras as keras

    class Adversaries(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.maker = keras.Sequential([keras.layers.Dense(3)])
            self.judge = keras.Sequential([keras.layers.Dense(1)])

        def compile(self, **options: Any) -> None:
            super().compile(**options)
            self.maker_optimizer = keras.optimizers.legacy.Adam(0.05)
            self.judge_optimizer = keras.optimizers.legacy.SGD(0.05)

        def call(self, x: Any) -> Any:
            return self.judge(self.maker(x))

        def train_step(self, batch: Any) -> Any:
            import tensorflow as tf

            x, _ = batch
            count = self.distribute_strategy.num_replicas_in_sync
            with tf.GradientTape(persistent=True) as tape:
                made, true = self.judge(self.maker(x)), self.judge(x)
                judged = tf.reduce_mean(tf.nn.softplus(made) + tf.nn.softplus(-true))
                fooled = tf.reduce_mean(tf.nn.softplus(-made))
                losses = {self.judge: judged / count, self.maker: fooled / count}
            optimizers = {
                self.judge: self.judge_optimizer,
                self.maker: self.maker_optimizer,
            }
            for network, optimizer in optimizers.items():
                variables = network.trainable_variables
                gradients = tape.gradient(losses[network], variables)
                optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return {"judge": losses[self.judge], "maker": losses[self.maker]}

    model = Adversaries()
    model.compile()
    return model


def make_eager() -> Any:
    """A model whose step is not traced."""
    model = make_dense()
    model.compile("sgd", "mse", run_eagerly=True)
    return model


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
        return words, _draw(step, 8, 5, 1)


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


def make_uncompiled() -> Any:
    """A model without an optimizer."""
    import keras

    return keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])


make_uncompiled.data = data


def _make_odd_on_servers(refuse: Any) -> Any:
    """A model whose step is another one under parameter servers."""
    import tensorflow as tf
    import tf_keras as keras

    class Model(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            if isinstance(
                tf.distribute.get_strategy(), tf.distribute.ParameterServerStrategy
            ):
                data = refuse(data)
            return super().train_step(data)

    model = Model([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def make_raising() -> Any:
    """Raises while its step is traced."""

    def refuse(data: Any) -> Any:
        raise ValueError("not here")

    return _make_odd_on_servers(refuse)


def make_asserting() -> Any:
    """Raises while its step runs."""
    import tensorflow as tf

    def refuse(data: Any) -> Any:
        x, y = data
        with tf.control_dependencies([tf.debugging.Assert(tf.size(x) < 0, ["no"])]):
            return tf.identity(x), y

    return _make_odd_on_servers(refuse)


class Shrinking:
    """A model whose last of three batches has three examples in place of four."""

    __name__ = "Shrinking"

    def __call__(self) -> Any:
        return make_dense()

    def data(self, step: int) -> Any:
        examples = 3 if step == 2 else 4
        return _draw(step, examples, 3), _draw(step, examples, 1)


make_shrinking = Shrinking()
