"""Compiled Keras models with a `train_step` of their own."""

from __future__ import annotations

from typing import Any

# The bench looks for it in the module of the callable.
from keras_models import data as data


def make_with_step(step: Any) -> Any:
    import tf_keras as keras

    class Model(keras.Sequential):
        def train_step(self, batch: Any) -> Any:
            return step(self, *batch)

    layers = [keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]
    model = Model([keras.layers.Input((3,)), *layers])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    return model


def train(model: Any, loss_of: Any, **options: Any) -> Any:
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
            "mine": train(model, lambda: tf.reduce_mean((model(x) - y) ** 2) / count)
        }

    return make_with_step(step)


def make_mean_of_shard() -> Any:
    """The same without the division, as in many a tutorial."""

    def step(model: Any, x: Any, y: Any) -> Any:
        import tensorflow as tf

        return {"loss": train(model, lambda: tf.reduce_mean((model(x) - y) ** 2))}

    return make_with_step(step)


def make_another_loss_told() -> Any:
    """The own mean trains; an own `compute_loss` tells another loss, after it has."""

    def compute(self: Any, x: Any, y: Any, y_pred: Any) -> Any:
        import tensorflow as tf

        return tf.reduce_mean((y_pred - y) ** 2)

    def step(model: Any, x: Any, y: Any) -> Any:
        import tensorflow as tf

        train(model, lambda: tf.reduce_mean(tf.abs(model(x) - y)))
        return {"mine": model.compute_loss(x, y, model(x))}

    model = make_with_step(step)
    type(model).compute_loss = compute
    return model


def make_whole_variances() -> Any:
    """Two errors with trained noises, of which each replica adds all logarithms."""
    import tensorflow as tf
    import tf_keras as keras

    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(2)
            self.noise = self.add_weight(name="noise", shape=(2,), initializer="zeros")

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def train_step(self, batch: Any) -> Any:
            x, y = batch

            def loss_of() -> Any:
                count = tf.distribute.get_strategy().num_replicas_in_sync
                errors = (self(x) - y) ** 2, tf.abs(self(x) - y)
                means = [tf.reduce_mean(error) / count for error in errors]
                first, second = tf.unstack(tf.exp(-self.noise))
                terms = first * means[0] + second * means[1]
                return terms + 0.5 * tf.reduce_sum(self.noise)

            return {"mine": train(self, loss_of)}

    model = Model()
    model.compile(keras.optimizers.Adam(0.1))
    return model


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

    return make_with_step(step)


def make_not_reduced() -> Any:
    """A step that tells the optimizer not to sum, and does not sum itself."""

    def step(model: Any, x: Any, y: Any) -> Any:
        def compute() -> Any:
            return model.compute_loss(x, y, model(x))

        loss = train(model, compute, skip_gradients_aggregation=True)
        return {"loss": loss}

    return make_with_step(step)


def make_own_metric_wrong() -> Any:
    """A metric to which every shard adds the weight of the global batch."""
    import tf_keras as keras

    metric = None

    def step(model: Any, x: Any, y: Any) -> Any:
        import tensorflow as tf

        loss = train(model, lambda: model.compute_loss(x, y, model(x)))
        count = tf.distribute.get_strategy().num_replicas_in_sync
        metric.update_state(loss, sample_weight=tf.cast(count, tf.float32))
        return {"mine": metric.result()}

    model = make_with_step(step)
    metric = model.own = keras.metrics.Mean(name="own")
    return model


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
