"""Evaluation under parameter servers: by the workers in between, and by an evaluator.

Both are held against the same sum made in NumPy of the weights that were trained.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import distbench

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]
EXAMPLES = 22


def make_examples():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(EXAMPLES, 3)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


def make_model():
    import tf_keras

    layer = tf_keras.layers.Dense(1, kernel_initializer="zeros")
    model = tf_keras.Sequential([tf_keras.Input((3,)), layer])
    model.compile(
        tf_keras.optimizers.legacy.SGD(0.01),
        loss="mse",
        metrics=[tf_keras.metrics.MeanSquaredError(name="error")],
        pss_evaluation_shards=4,
    )
    return model


def train_and_evaluate(folder: str):
    """In the chief: what `evaluate` says in between, and the weights at that time."""
    import os

    import tensorflow as tf

    if '"type": "chief"' not in os.environ["TF_CONFIG"]:
        return None
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    with strategy.scope():
        model = make_model()
    data = tf.data.Dataset.from_tensor_slices(make_examples()).batch(4)
    model.fit(data.repeat(), epochs=1, steps_per_epoch=5, verbose=0)
    error = model.evaluate(data, verbose=0, return_dict=True)["error"]
    weights = [w.numpy() for w in model.trainable_variables]
    # The path that a ModelCheckpoint has: its number tells the evaluator the epoch.
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(f"{folder}/ckpt")
    return float(error), weights


def evaluate_beside(folder: str):
    """In an evaluator, which belongs to no cluster: what the checkpoint gives."""
    import tensorflow as tf
    import tf_keras

    found = []

    class Keep(tf_keras.callbacks.Callback):
        def on_test_end(self, logs=None):
            found.append(float(logs["error"]))

    data = tf.data.Dataset.from_tensor_slices(make_examples()).batch(4)
    tf_keras.utils.SidecarEvaluator(
        make_model(), data, folder, max_evaluations=1, callbacks=[Keep()]
    ).start()
    return found


def count_evaluated():
    """In the chief: errors and number of examples, each batch scheduled on a worker."""
    import os

    import tensorflow as tf

    if '"type": "chief"' not in os.environ["TF_CONFIG"]:
        return None
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.ones((3, 1)) * 0.5)

    def sum_errors(x, y):
        return tf.reduce_sum((x @ weights - y) ** 2), tf.shape(x)[0]

    x, y = make_examples()
    step = tf.function(sum_errors)
    results = [
        coordinator.schedule(
            step, args=(tf.constant(x[i : i + 4]), tf.constant(y[i : i + 4]))
        )
        for i in range(0, EXAMPLES, 4)
    ]
    coordinator.join()
    found = coordinator.fetch(results)
    return float(sum(error for error, _ in found)), int(sum(n for _, n in found))


def _sum_errors(kernel, bias=0.0) -> float:
    x, y = make_examples()
    return float(np.sum((x.astype(float) @ kernel + bias - y) ** 2))


def test_workers_and_an_evaluator_say_what_the_weights_give(tmp_path: Path) -> None:
    error, weights = distbench.run(train_and_evaluate, "ps:2+1", args=(str(tmp_path),))[
        "chief", 0
    ]
    (beside,) = distbench.run(evaluate_beside, "one", args=(str(tmp_path),))[
        "worker", 0
    ]
    assert np.all(weights[0] != 0)
    due = _sum_errors(*weights) / EXAMPLES
    # Sums of 22 squares in float32: rounding is far below one example's share.
    assert error == pytest.approx(due, rel=1e-5)
    assert beside == pytest.approx(due, rel=1e-5)


def test_batches_that_are_scheduled_count_every_example_once() -> None:
    error, count = distbench.run(count_evaluated, "ps:2+1")["chief", 0]
    assert count == EXAMPLES
    assert error == pytest.approx(_sum_errors(np.full((3, 1), 0.5)), rel=1e-5)
