"""The loop of scripts/ps_throughput.py: by hand on TensorFlow alone, and observed.

Runs in the chief of a cluster; workers and parameter servers serve.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tf_keras.optimizers import legacy

from distbench.cluster import ClusterSpec, Task
from distbench.worker.stepping.session import Session
from distbench.worker.stepping.steps import StepsInFlight
from distbench.worker.subjects.user_program import UserProgram

Take = Callable[[Sequence[Any]], None]
_FEATURES, _OUTPUTS = 256, 64


class Counted:
    """A layer, and a place for each step of a round, which tells how often it came.

    Args:
        places: Steps in a round.
    """

    def __init__(self, places: int) -> None:
        self._places = places

    def build(self, strategy: Any) -> None:
        """Make the layer, the places and the optimizer."""
        del strategy
        self.tally = tf.Variable(np.zeros(self._places, np.float32), name="tally")
        kernel = np.full((_FEATURES, _OUTPUTS), 0.01, np.float32)
        self.kernel = tf.Variable(kernel, name="kernel")
        self._optimizer = legacy.SGD(1.0)

    def variables(self) -> list[Any]:
        """Both variables."""
        return [self.tally, self.kernel]

    def optimizer(self) -> Any:
        """SGD with rate 1: a step takes 1 from its place."""
        return self._optimizer

    def data(self, step: int) -> tuple[Any, Any]:
        """The place of a step, and inputs for the layer."""
        place = np.zeros((1, self._places), np.float32)
        place[0, step % self._places] = 1.0
        inputs = np.random.default_rng(step).normal(size=(32, _FEATURES))
        return place, inputs.astype(np.float32)

    def replica_step(self, batch: Any) -> Any:
        """A step as users write it."""
        place, inputs = batch
        with tf.GradientTape() as tape:
            outputs = tf.tanh(inputs @ self.kernel)
            loss = tf.reduce_sum(tf.linalg.matvec(place, self.tally))
            loss += 1e-6 * tf.reduce_sum(outputs**2)
        gradients = tape.gradient(loss, self.variables())
        self._optimizer.apply_gradients(zip(gradients, self.variables(), strict=True))
        return loss


def measure(spec: str, in_flight: int, rounds: int) -> dict[str, Any] | None:
    """Seconds of each round by either loop, and how often each step was applied.

    The loops take turns, so what slows the machine slows both. The first round of each
    traces its function and is left out.
    """
    if '"type": "chief"' not in os.environ.get("TF_CONFIG", ""):
        return None
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    program = Counted(in_flight)
    chief = Task(role="chief", index=0)
    cluster = ClusterSpec.parse(spec)
    session = Session(UserProgram(program), strategy, cluster, chief, tapped=False)
    batches = [program.data(step) for step in range(in_flight)]
    loops = {"hand": _make_loop(strategy, program), "observed": _observe(session)}
    found: dict[str, Any] = {"lost": 0, "extra": 0}
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(rounds + 1):
        for name, take in loops.items():
            program.tally.assign(tf.zeros([in_flight]))
            begin = time.perf_counter()
            take(batches)
            if number:
                seconds[name].append(time.perf_counter() - begin)
            times = np.round(-program.tally.numpy()).astype(int)
            found["lost"] += int(np.sum(np.maximum(1 - times, 0)))
            found["extra"] += int(np.sum(np.maximum(times - 1, 0)))
    return {**found, "seconds": seconds}


def _make_loop(strategy: Any, program: Counted) -> Take:
    """What a user writes."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    @tf.function
    def step(batch: Any) -> Any:
        return strategy.run(program.replica_step, args=(batch,))

    def take(batches: Sequence[Any]) -> None:
        results = [
            coordinator.schedule(step, args=(tf.nest.map_structure(tf.constant, b),))
            for b in batches
        ]
        coordinator.join()
        coordinator.fetch(results)

    return take


def _observe(session: Session) -> Take:
    steps = StepsInFlight(session, session.program.replica_step)

    def take(batches: Sequence[Any]) -> None:
        steps.run(batches)

    return take
