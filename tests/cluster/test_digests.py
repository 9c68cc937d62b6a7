"""Digests in the place of values: of the same bits, and each made once."""

from __future__ import annotations

from typing import Any

import pytest

import distbench

pytestmark = pytest.mark.cluster
ROWS, COLUMNS, EXAMPLES = 6, 3, 8


def _observe(spec_text: str, fault: str):
    """Runs in a task: one step of a network, with a fault on replica 1.

    Returns:
        Digests of what the taps and variables hold, by phase, variable and replica, and
        of how many arrays the taps' were made.
    """
    import json
    import os
    from unittest import mock

    import numpy as np
    import tensorflow as tf
    import tf_keras

    from distbench.cluster import ClusterSpec, Task
    from distbench.worker.process.strategies import make_strategy
    from distbench.worker.recording import digests
    from distbench.worker.stepping.session import Session
    from distbench.worker.subjects.user_program import UserProgram

    config = os.environ.get("TF_CONFIG", '{"task": {"type": "worker", "index": 0}}')
    place = json.loads(config)["task"]
    spec = ClusterSpec.parse(spec_text)

    class Network:
        loss_reduction = "sum"

        def build(self, strategy):
            del strategy
            rng = np.random.default_rng(3)
            shapes = {"table": (9, ROWS), "kernel": (ROWS, COLUMNS)}
            self._variables = [
                tf.Variable(rng.normal(size=shape).astype(np.float32), name=name)
                for name, shape in shapes.items()
            ]
            self._optimizer = tf_keras.optimizers.legacy.SGD(0.1)

        def variables(self):
            return self._variables

        def optimizer(self):
            return self._optimizer

        def data(self, step):
            rng = np.random.default_rng(step)
            return (
                rng.integers(0, 9, EXAMPLES),
                rng.normal(size=(EXAMPLES, COLUMNS)).astype(np.float32),
            )

        def replica_step(self, batch):
            tokens, targets = batch
            table, kernel = self._variables
            with tf.GradientTape() as tape:
                found = tf.gather(table, tokens) @ kernel
                loss = tf.reduce_sum((found - targets) ** 2) / EXAMPLES
            rows, dense = tape.gradient(loss, self._variables)
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            replica = tf.get_static_value(number)
            if replica == 1 and fault == "scaled":
                dense = dense * (1 + 1e-6)
            elif replica == 1 and fault == "swapped":
                dense = tf.gather(dense, [1, 0, *range(2, ROWS)])
            self._optimizer.apply_gradients([(rows, table), (dense, kernel)])
            return loss

    program = Network()
    task = Task(role=place["type"], index=place["index"])
    session = Session(UserProgram(program), make_strategy(spec), spec, task)
    parts = [np.array_split(part, spec.replicas) for part in program.data(0)]
    shards = list(zip(*parts, strict=True))
    step = session.make_step()
    session.prepare(step, shards)
    session.run(step, shards)
    values: dict[Any, Any] = {}
    session.collect_taps(0, values)
    read = []
    make = digests.digest_64
    with mock.patch.object(
        digests, "digest_64", side_effect=lambda a: read.append(a) or make(a)
    ):
        digests.digest_values(values)
    found = {
        (k.phase, k.variable, k.replica): v
        for k, v in values.items()
        if k.phase != "loss"
    }
    for variable in session.table.state:
        for number, component in enumerate(variable.components):
            key = "variable", variable.info.path, session.first_replica + number
            found[key] = digests.digest_component(component)
    return found, len(read)


def _run(cluster: str, fault: str = ""):
    results = distbench.run(lambda: _observe(f"{cluster}@cpu", fault), cluster)
    counts = [count for _, count in results.values()]
    values = [part.items() for part, _ in results.values()]
    return {key: value.tobytes() for part in values for key, value in part}, counts


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        # Three arrays: the dense gradient, and the rows and values of the sparse one.
        pytest.param("one", [3], id="one"),
        # Of each replica its own, and the sums.
        pytest.param("mirrored:2", [12], id="mirrored"),
        pytest.param("mwms:2", [6, 6], id="mwms"),
    ],
)
def test_what_several_phases_see_is_read_once(
    cluster: str, expected: list[int]
) -> None:
    found, counts = _run(cluster)
    assert counts == expected
    replicas = 1 if cluster == "one" else 2
    for variable in ("table", "kernel"):
        local, reduced, applied = (
            [found[phase, variable, replica] for replica in range(replicas)]
            for phase in ("local_gradient", "reduced_gradient", "applied_gradient")
        )
        assert reduced == applied
        assert len(set(local)) == replicas
        assert len(set(reduced)) == 1
        assert (reduced == local) is (replicas == 1)


@pytest.mark.parametrize("cluster", ["mirrored:2", "mwms:2"])
@pytest.mark.parametrize("fault", ["scaled", "swapped"])
def test_a_digest_tells_small_differences(cluster: str, fault: str) -> None:
    right, _ = _run(cluster)
    wrong, _ = _run(cluster, fault=fault)
    assert right.keys() == wrong.keys()
    differ = {key for key in right if right[key] != wrong[key]}
    phases = ("reduced_gradient", "applied_gradient", "variable")
    assert differ == {(p, "kernel", r) for p in phases for r in range(2)}
