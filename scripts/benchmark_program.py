"""What the processes of scripts/benchmark.py run; TensorFlow is imported there."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_STEPS = 3
_EXAMPLES = 256
_HALVES = (slice(_EXAMPLES // 2), slice(_EXAMPLES // 2, _EXAMPLES))


def start() -> float:
    """Make the strategy of all workers, and take no step."""
    import tensorflow as tf

    return float(tf.distribute.MultiWorkerMirroredStrategy().num_replicas_in_sync)


def train(*, converted: bool = True) -> float:
    """Three steps of one variable on all workers; returns where it ended.

    Args:
        converted: Whether AutoGraph converts the source of the step.
    """
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        variable = tf.Variable(1.0)

    def replica_step() -> None:
        context = tf.distribute.get_replica_context()
        gradient = context.all_reduce(
            "sum", 2.0 * variable / strategy.num_replicas_in_sync
        )
        variable.assign_sub(0.125 * gradient)

    return _take_steps(strategy, replica_step, variable, converted=converted)


def train_unconverted() -> float:
    """The same, of a step that AutoGraph takes as it is."""
    return train(converted=False)


def train_by_adam() -> float:
    """Three steps of Adam on one variable, on all workers; returns where it ended."""
    import tensorflow as tf
    from tf_keras.optimizers import legacy

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        variable = tf.Variable(1.0)
        optimizer = legacy.Adam(0.125)

    def replica_step() -> None:
        with tf.GradientTape() as tape:
            loss = variable**2.0 / strategy.num_replicas_in_sync
        optimizer.minimize(loss, [variable], tape=tape)

    return _take_steps(strategy, replica_step, variable)


def _take_steps(
    strategy: Any,
    replica_step: Callable[[], None],
    variable: Any,
    *,
    converted: bool = True,
) -> float:
    import tensorflow as tf

    @tf.function(autograph=converted)
    def step() -> None:
        strategy.run(replica_step)

    for _ in range(_STEPS):
        step()
    return float(variable.numpy())


def measure_memory() -> tuple[int, int]:
    """Bytes that this process has for itself, and that it shares, after three steps."""
    import os

    if "TF_CONFIG" in os.environ:
        train()
    else:
        import tensorflow as tf

        tf.function(lambda: tf.reduce_sum(tf.ones([2]) * 2.0))()
    sizes = {"Private": 0, "Shared": 0}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name, size, *_ = line.split()
        kind = name.partition("_")[0]
        if kind in sizes and name.endswith(("_Clean:", "_Dirty:")):
            sizes[kind] += int(size) * 1024
    return sizes["Private"], sizes["Shared"]


def measure_steps(layers: tuple[int, int, int], rounds: int) -> dict[str, list[float]]:
    """Seconds of steps without taps, with taps, and with what is made of them.

    Args:
        layers: Units of the input, of the hidden layer and of the output.
        rounds: How many steps of each.
    """
    import tensorflow as tf

    from distbench.cluster import ClusterSpec
    from distbench.trace import Recorded
    from distbench.worker.recording.digests import digest_values
    from distbench.worker.stepping.session import Session
    from distbench.worker.subjects.user_program import UserProgram

    spec = ClusterSpec.parse("mirrored:2@cpu")
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    program = Network(layers)
    batch = program.data(0)
    shards = [tuple(part[half] for part in batch) for half in _HALVES]

    def read(session: Session) -> None:
        session.collect_taps(0, {})

    def digest(session: Session) -> None:
        values: Recorded = {}
        session.collect_taps(0, values)
        digest_values(values)

    sides: dict[str, tuple[Session, Any, Callable[[Session], None]]] = {}
    for name, tapped, use in (
        ("without taps", False, lambda _: None),
        ("with all taps", True, lambda _: None),
        ("with all taps, digested", True, digest),
        ("with all taps, read", True, read),
    ):
        session = Session(
            UserProgram(Network(layers)), strategy, spec, spec.tasks[0], tapped=tapped
        )
        step = session.make_step()
        session.prepare(step, shards)
        session.run(step, shards)
        sides[name] = session, step, use
    samples: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, (session, step, use) in sides.items():
            begin = time.perf_counter()
            session.run(step, shards)
            use(session)
            samples[name].append(time.perf_counter() - begin)
    return samples


class Network:
    """An MLP with one hidden layer, trained by Adam.

    Args:
        layers: Units of the input, of the hidden layer and of the output.
        examples: In each batch.
    """

    loss_reduction = "sum"

    def __init__(self, layers: tuple[int, int, int], examples: int = _EXAMPLES) -> None:
        self._layers, self._examples = layers, examples

    def build(self, strategy: Any) -> None:
        """Make the kernels and the optimizer."""
        del strategy
        import tensorflow as tf
        from tf_keras.optimizers import legacy

        inputs, hidden, outputs = self._layers
        self._kernels = [
            tf.Variable(tf.random.stateless_normal(shape, [1, seed]) * 0.01)
            for seed, shape in enumerate([(inputs, hidden), (hidden, outputs)])
        ]
        self._optimizer = legacy.Adam(1e-3)

    def variables(self) -> list[Any]:
        """Both kernels."""
        return self._kernels

    def optimizer(self) -> Any:
        """Adam."""
        return self._optimizer

    def data(self, step: int) -> tuple[Any, Any]:
        """The same number of examples in every step."""
        import numpy as np

        rng = np.random.default_rng(step)
        features = rng.normal(size=(self._examples, self._layers[0]))
        labels = rng.normal(size=(self._examples, self._layers[2]))
        return features.astype(np.float32), labels.astype(np.float32)

    def replica_step(self, batch: Any) -> Any:
        """A step as users write it."""
        import tensorflow as tf

        features, labels = batch
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(features @ self._kernels[0])
            errors = (hidden @ self._kernels[1] - labels) ** 2
            loss = tf.reduce_sum(errors) / self._examples
        gradients = tape.gradient(loss, self._kernels)
        self._optimizer.apply_gradients(zip(gradients, self._kernels, strict=True))
        return loss
