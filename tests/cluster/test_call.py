"""Any function on every task: who runs it, what comes back, who is blamed."""

from __future__ import annotations

import json
import os
import threading

import pytest

import distbench
from distbench.errors import BadInputError, ClusterError

pytestmark = pytest.mark.cluster


def read_place(word):
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    return word, config.get("task"), sorted(config.get("cluster", {}))


def sum_over_workers():
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def step():
        def give():
            context = tf.distribute.get_replica_context()
            return tf.cast(context.replica_id_in_sync_group + 1, tf.float32)

        return strategy.reduce("sum", strategy.run(give), axis=None)

    return float(step())


def test_every_worker_runs_the_function_with_its_own_tf_config() -> None:
    results = distbench.run(read_place, "mwms:2", args=("hello",))
    assert results == {
        ("worker", i): ("hello", {"type": "worker", "index": i}, ["worker"])
        for i in range(2)
    }


def test_parameter_servers_only_serve() -> None:
    results = distbench.run(read_place, "ps:2+1", args=("hello",))
    assert sorted(results) == [("chief", 0), ("worker", 0), ("worker", 1)]
    assert results["chief", 0][2] == ["chief", "ps", "worker"]


@pytest.mark.parametrize("cluster", ["one", "mirrored:2", "central:2"])
def test_one_process_has_no_tf_config(cluster: str) -> None:
    results = distbench.run(lambda: os.environ.get("TF_CONFIG"), cluster)
    assert results == {("worker", 0): None}


def test_workers_meet_in_a_collective() -> None:
    results = distbench.run(sum_over_workers, "mwms:2")
    assert results == {("worker", 0): 3.0, ("worker", 1): 3.0}


def test_the_worker_that_raises_is_named_and_nobody_waits_for_it() -> None:
    def fail_on_the_second():
        if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
            raise ValueError("told to")
        return sum_over_workers()

    with pytest.raises(ClusterError, match=r"worker-1.*ValueError.*told to"):
        distbench.run(fail_on_the_second, "mwms:2", timeout_s=60)


def test_the_worker_that_dies_is_named() -> None:
    def die_on_the_first():
        if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
            os._exit(7)
        return sum_over_workers()

    with pytest.raises(ClusterError, match=r"worker-0.*7"):
        distbench.run(die_on_the_first, "mwms:2", timeout_s=60)


def test_what_cannot_be_sent_is_named() -> None:
    held = threading.Lock()
    with pytest.raises(BadInputError, match="cannot be sent"):
        distbench.run(lambda: held.locked(), "one")
