"""Runs the fragments of code in the documentation, on one device.

A fragment uses names that its reader has: an optimizer, gradients, a batch. Here they
are real ones, so what a fragment calls exists and takes what it is given. What it
computes on several replicas is the business of the seeded faults.
"""

from __future__ import annotations

import sys
import textwrap
import types
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from pages import PAGES, Block, name_page, read_blocks

import distbench


class Base(tf_keras.optimizers.legacy.SGD):
    """What a method in a fragment overrides."""

    weight_decay = 0.01

    def _decay(self, variables: Any) -> None:
        for variable in variables:
            variable.assign(0.9 * variable)

    def _update_statistics(self, pairs: Any) -> None:
        assert len(list(pairs)) == 2


def build_model() -> Any:
    layer = tf_keras.layers.Dense(3, kernel_regularizer="l2", input_shape=(3,))
    return tf_keras.Sequential([layer])


def make_names(folder: str) -> dict[str, Any]:
    """What a reader of a fragment has."""
    tf.random.set_seed(1)  # which deterministic ops ask for
    strategy = tf.distribute.get_strategy()
    model = build_model()
    variables = model.trainable_variables
    gradients = [tf.ones_like(variable) for variable in variables]
    optimizer = tf_keras.optimizers.legacy.SGD(0.1)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
    path = tf.train.Checkpoint(model=model, optimizer=optimizer).save(f"{folder}/c")
    rows = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    ones = tf.ones(3)
    position = tf.constant([0, 0])

    def state() -> tf.Variable:
        return tf.Variable(ones)

    def make_step(variable: tf.Variable) -> Any:
        @tf.function
        def step(batch: Any) -> None:
            optimizer.apply_gradients([(ones, variable)])

        return step

    return {
        "tf": tf,
        "tf_keras": tf_keras,
        "distbench": distbench,
        "strategy": strategy,
        "context": tf.distribute.get_replica_context(),
        "model": model,
        "build_model": build_model,
        "optimizer": optimizer,
        "variables": variables,
        "gradients": gradients,
        "pairs": list(zip(gradients, variables, strict=True)),
        "path": path,
        "GLOBAL_BATCH": 8,
        "G": 8,
        "BATCH_PER_WORKER": 8,
        "local_batch": 4,
        "micro_examples": 2,
        "window_examples": 8,
        "num_workers": 2,
        "worker_index": 0,
        "per_example": tf.ones(8),
        "losses": tf.constant(1.0),
        "loss": tf.constant(1.0),
        "data_loss": tf.constant(1.0),
        "per_replica_accuracy": tf.constant(0.5),
        "body": tf_keras.optimizers.legacy.SGD(0.1),
        "head": tf_keras.optimizers.legacy.SGD(0.1),
        "body_variables": variables[:1],
        "head_variables": variables[1:],
        "reduced": gradients[:1],
        "g_body": gradients[:1],
        "g_head": gradients[1:],
        "grad": ones,
        "g": ones,
        "new_m": tf.ones([2, 2]),
        "m": state(),
        "var": state(),
        "variable": state(),
        "velocity": state(),
        "average": state(),
        "accumulator": state(),
        "buffers": [tf.Variable(gradient) for gradient in gradients],
        "position": position,
        "count": 2,
        "indices": position,
        "rows": rows,
        "shape": [3],
        "step": 1,
        "replicas": range(2),
        "lr": 0.1,
        "decay": 0.9,
        "momentum": 0.9,
        "beta": 0.9,
        "local_gradient": ones,
        "reduced_gradient": ones,
        "apply": lambda: None,
        "data": np.ones((4, 3), "float32"),
        "examples": np.ones((8, 3), "float32"),
        "features": tf.ones([8, 4]),
        "dataset": tf.data.Dataset.range(4),
        # The one stand-in: a coordinator needs parameter servers.
        "coordinator": types.SimpleNamespace(schedule=lambda step: None),
        "batch": ones,
        "train_critic": make_step(state()),
        "train_generator": make_step(state()),
        "self": tf_keras.optimizers.legacy.SGD(0.1, momentum=0.9),
        "Base": Base,
    }


def change_names(about: str, names: dict[str, Any]) -> None:
    """What a name stands for in the fragments about one thing."""
    slices = tf.IndexedSlices(names["rows"], tf.constant([0, 1]), [3, 2])
    others: dict[str, dict[str, Any]] = {
        "sparse-duplicates": {"grad": names["rows"]},
        "sparse-averaged": {"grad": names["rows"]},
        "sparse-rows": {"grad": slices},
        "variable-not-reduced": {"g": names["gradients"][1:]},
        "replica-dropped": {"gradients": names["g"]},
        "examples-missed": {"context": tf.distribute.InputContext()},
    }
    names.update(others.get(about, {}))


def run_fragment(block: Block, names: dict[str, Any], folder: str) -> None:
    """Run one fragment: as statements, or as a method of an optimizer."""
    mark = block.find_mark("fragment") or ""
    about, _, which = mark.partition(", ")
    change_names(about, names)
    text = block.text.replace("return strategy", "result = strategy")
    text = text.replace("...", "train_critic(batch)")  # "your loop"
    if "(self," in text:
        text = f"class Fragment(Base):\n{textwrap.indent(text, '    ')}"
    code = compile(text, mark, "exec")
    if about == "record" and which:
        recording = distbench.record(
            names["strategy"], names["optimizer"], folder=f"{folder}/{which}"
        )
        with recording as names["recorder"]:
            exec(code, names)
    else:
        exec(code, names)
    call(names)


def call(names: dict[str, Any]) -> None:
    """Call what a fragment defines."""
    if "merge" in names:
        names["merge"](names["strategy"], names["pairs"])
    if "dataset_fn" in names:
        next(iter(names["dataset_fn"](tf.distribute.InputContext())))
    if "Fragment" in names:
        optimizer = names["Fragment"](0.1)
        overridden = vars(names["Fragment"])
        pairs = names["pairs"]
        if "_resource_apply_sparse" in overridden:
            names["m"] = tf.Variable(tf.ones([3, 2]))
            table = tf.Variable(tf.ones([3, 2]))
            rows = tf.IndexedSlices(names["rows"], tf.constant([0, 1]), [3, 2])
            pairs = [(rows, table)]
        elif "_resource_apply_dense" in overridden:
            pairs = [(tf.ones(3), names["m"])]
        if "minimize" in overridden:
            [*_, variable] = names["variables"]
            optimizer.minimize(lambda: tf.reduce_sum(variable), [variable])
        else:
            optimizer.apply_gradients(pairs)


def main(folder: str) -> int:
    """Run all fragments of all pages."""
    failed = ran = 0
    for page in PAGES:
        for block in read_blocks(page):
            if block.find_mark("fragment") is None:
                continue
            ran += 1
            try:
                run_fragment(block, make_names(folder), folder)
            except Exception as error:  # noqa: BLE001  # each is told, then the next
                failed += 1
                print(f"{name_page(page)}:{block.line}: {type(error).__name__} {error}")
    print(f"{ran} fragments, {failed} failed")
    return int(failed > 0 or ran == 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
