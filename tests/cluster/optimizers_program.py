"""Runs the scenarios' optimizers on one device and under strategies; a program.

Each replica gets a gradient of small integers, which does not depend on the variables:
whatever the order, the sum over the replicas has no rounding, so that one device must
give the same bits. The table's gradient is sparse, with rows that occur twice on one
replica and rows that both replicas have.
"""

from __future__ import annotations

import importlib.util
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

STEPS = 3
ROWS = 8
FOLDER = Path(__file__).parents[2] / "scenarios" / "optimizers"
stock = tf_keras.optimizers.legacy


def load(stem: str) -> Any:
    spec = importlib.util.spec_from_file_location(stem, FOLDER / f"{stem}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def list_factories() -> dict[str, Callable[[], Any]]:
    sgd, momentum, adam = load("sgd"), load("momentum"), load("adam")
    adamw, averaged, lazy = load("adamw"), load("averaged_sgd"), load("lazy_adam")
    return {
        "sgd": sgd.make_sgd,
        "momentum": momentum.make_momentum,
        "adam": adam.make_adam,
        "adamw": adamw.make_adamw,
        "averaged_sgd": averaged.make_averaged_sgd,
        "lazy_adam": lazy.make_lazy_adam,
        "sgd-decay": lambda: sgd.GradientDescent(0.1, decay=0.5),
        "adamw-without-decay": lambda: adamw.AdamW(0.01, weight_decay=0.0),
        "stock-sgd": lambda: stock.SGD(0.1),
        "stock-sgd-decay": lambda: stock.SGD(0.1, decay=0.5),
        "stock-momentum": lambda: stock.SGD(0.1, momentum=0.9),
        "stock-adam": lambda: stock.Adam(0.01),
    }


def draw_gradients(step: int, replica: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng((step, replica))
    rows = 5 - 2 * replica
    indices = rng.integers(0, ROWS - 2, rows)
    indices[:2] = step  # twice on a replica, on both replicas, another each step
    return {
        "kernel": rng.integers(-9, 10, (4, 3)).astype(np.float32),
        "indices": indices,
        "values": rng.integers(-9, 10, (rows, 3)).astype(np.float32),
    }


def train(
    make: Callable[[], Any],
    strategy: tf.distribute.Strategy,
    *,
    replicas: int = 2,
    dense: bool = False,
) -> dict[str, list[list[np.ndarray]]]:
    """Each variable's and slot's value by step and replica, after the step.

    One device gets what all `replicas` hand in: the sum of the dense gradients and
    the slices one after another.
    """
    with strategy.scope():
        rng = np.random.default_rng(0)
        kernel = tf.Variable(rng.normal(size=(4, 3)).astype("f"), name="kernel")
        table = tf.Variable(rng.normal(size=(ROWS, 3)).astype("f"), name="table")
        unused = tf.Variable(np.ones(2, "f"), name="unused")
        optimizer = make()

    @tf.function
    def step(parts: Any) -> None:
        def apply(part: dict[str, tf.Tensor]) -> None:
            sparse = tf.IndexedSlices(
                part["values"], part["indices"], tf.constant((ROWS, 3), tf.int64)
            )
            gradient = tf.convert_to_tensor(sparse) if dense else sparse
            pairs = ((part["kernel"], kernel), (gradient, table), (None, unused))
            optimizer.apply_gradients(iter(pairs))

        strategy.run(apply, args=(parts,))

    recorded: dict[str, list[list[np.ndarray]]] = {}
    for number in range(STEPS):
        drawn = [draw_gradients(number, r) for r in range(replicas)]
        if strategy.num_replicas_in_sync == 1:
            drawn = [
                {
                    "kernel": sum(d["kernel"] for d in drawn),
                    "indices": np.concatenate([d["indices"] for d in drawn]),
                    "values": np.concatenate([d["values"] for d in drawn]),
                }
            ]
        step(distribute(strategy, drawn))
        for variable in (kernel, table, unused, *optimizer.variables()):
            copies = getattr(variable, "values", None) or (variable,)
            recorded.setdefault(variable.name.partition(":")[0], []).append(
                [copy.numpy() for copy in copies]
            )
    return recorded


def decay_alone(optimizer: Any) -> dict[str, np.ndarray]:
    """What is left of 1.0 after gradients of 0, of which Adam makes a step of 0."""
    variables = [tf.Variable(tf.ones(2), name=name) for name in ("kernel", "bias")]
    for _ in range(STEPS):
        optimizer.apply_gradients([(tf.zeros(2), var) for var in variables])
    return {var.name: var.numpy() for var in variables}


def average_constrained(optimizer: Any) -> tuple[float, float]:
    """A variable that its constraint holds at 0, and its average."""
    var = tf.Variable(0.5, constraint=tf.nn.relu)
    optimizer.apply_gradients([(tf.constant(100.0), var)])
    return float(var), float(optimizer.get_slot(var, "average"))


def distribute(strategy: tf.distribute.Strategy, drawn: list[Any]) -> Any:
    return {
        key: strategy.experimental_distribute_values_from_function(
            lambda c, key=key: tf.constant(drawn[c.replica_id_in_sync_group][key])
        )
        for key in drawn[0]
    }


def main(out: Path) -> None:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    # One strategy object: a second one would start again at the first collective key
    # and clash with the first in this process.
    strategies = {
        "one": tf.distribute.OneDeviceStrategy("cpu:0"),
        "mirrored": tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]),
        "central": tf.distribute.experimental.CentralStorageStrategy(
            ["cpu:0", "cpu:1"], "cpu:0"
        ),
    }
    factories = list_factories()
    results: dict[Any, Any] = {
        (kind, name): train(make, strategy)
        for kind, strategy in strategies.items()
        for name, make in factories.items()
    }
    for name, make in factories.items():
        results["dense", name] = train(make, strategies["one"], dense=True)
        optimizer = make()
        config = optimizer.get_config()
        copy = type(optimizer).from_config(config)
        results["config", name] = (config, copy.get_config())
    results["decay alone"] = decay_alone(factories["adamw"]())
    results["constraint"] = average_constrained(factories["averaged_sgd"]())
    out.write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
