"""Jobs of users' own that go on after a call that raised, as data at their end do."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distbench
from distbench.trace import PHASES
from distbench.trace.folder import read_folder

pytestmark = pytest.mark.cluster
EPOCHS, BATCHES = 2, 3


def make_data() -> Any:
    """Batches of which nobody knows how many there are."""
    import tensorflow as tf

    inputs = np.random.default_rng(0).normal(size=(4 * BATCHES, 3)).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((inputs, inputs[:, :1])).batch(4)
    return data.filter(lambda *_: True)


def fit(package: str, folder: Path) -> Any:
    """Have Keras train until each epoch's data is at its end."""
    import importlib

    keras = importlib.import_module(package)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    recording = distbench.record(
        None, model.optimizer, folder=folder, variables=model.variables
    )
    with recording as recorder:
        model.fit(make_data(), epochs=EPOCHS, shuffle=False, verbose=0)
    return recorder.recorded


def loop(kind: str, folder: Path) -> Any:
    """Train by hand until a call raises; each kind is another way to write that."""
    import tensorflow as tf
    import tf_keras

    variable = tf.Variable([1.0, 1.0, 1.0])
    optimizer = tf_keras.optimizers.legacy.SGD(0.1)

    def train(iterator: Any) -> None:
        # Nothing makes the update wait for what raises.
        inputs, _ = iterator.get_next()
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((inputs * variable) ** 2)
        optimizer.apply_gradients([(tape.gradient(loss, variable), variable)])

    def update(iterator: Any) -> None:
        optional = iterator.get_next_as_optional()
        gradient = optional.get_value()[0][0] if optional.has_value() else tf.ones([4])
        optimizer.apply_gradients([(gradient, variable)])

    step = {"eager": update}.get(kind, tf.function(train))
    with distbench.record(
        None, optimizer, folder=folder, variables=[variable]
    ) as recorder:
        for _ in range(EPOCHS):
            iterator = iter(make_data())
            with contextlib.suppress(tf.errors.OpError):
                while True:
                    is_said = kind == "said"
                    with recorder.step() if is_said else contextlib.nullcontext():
                        step(iterator)
    return recorder.recorded


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("name", ["keras", "tf_keras", "function", "said", "eager"])
def test_a_call_that_raises_is_no_step(name: str, tmp_path: Path) -> None:
    train = fit if "keras" in name else loop
    recorded = train(name, tmp_path / "run")
    assert recorded == list(range(EPOCHS * BATCHES))
    trace = read_folder(tmp_path / "run")
    for phase in ("reduced_gradient", "variable"):
        assert phase in PHASES
        for step in recorded:
            assert list(trace.select(step=step, phase=phase)), (step, phase)
