"""The fork server with TensorFlow in it."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from distbench.cluster import ClusterSpec
from distbench.launch.channel import TaskChannel
from distbench.launch.engine import Request
from distbench.launch.local import LocalEngine
from distbench.launch.rundir import RunDirectory
from distbench.launch.servers import get_fork_server
from distbench.launch.start import start_group
from distbench.launch.surroundings import Start
from distbench.launch.task import TaskContext, serve

pytestmark = pytest.mark.cluster

PRELOAD = ("tensorflow", "tf_keras")
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "2"}


def run_task(channel: TaskChannel, context: TaskContext) -> None:
    def describe(payload: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"imported": "tensorflow" in sys.modules}

    def add(payload: Mapping[str, Any]) -> Mapping[str, Any]:
        import tensorflow as tf

        return {"sum": float(tf.add(1.0, payload["x"]).numpy())}

    serve(channel, {"describe": describe, "add": add})


def make_request(directory: RunDirectory, start: Start | None = None) -> Request:
    return Request(
        spec=ClusterSpec.parse("mwms:2"),
        directory=directory,
        entry=f"{Path(__file__).stem}:run_task",
        preload=PRELOAD,
        environment=ENVIRONMENT,
        start=start,
    )


def measure_start(start: Start, directory: RunDirectory) -> float:
    begin = time.monotonic()
    request = make_request(directory, start)
    with start_group(request, LocalEngine()) as group:
        results = group.call("describe", {}, deadline=120.0)
        assert all(result["imported"] for result in results.values())
        return time.monotonic() - begin


@pytest.mark.nightly
def test_a_fork_is_much_faster_than_an_import() -> None:
    server = get_fork_server(PRELOAD, ENVIRONMENT)
    server.wait_ready()
    assert psutil.Process(server.pid).num_threads() == 1
    with RunDirectory() as directory:
        fork_s, spawn_s = (
            measure_start(start, directory) for start in ("fork", "spawn")
        )
    # Measured: 0.03 s and 6 s on two cores. The two are taken side by side, so that a
    # busy machine slows both.
    assert spawn_s > 5 * fork_s


def test_every_forked_task_can_run_tensorflow_afresh() -> None:
    with RunDirectory() as directory:
        for _ in range(2):
            with start_group(make_request(directory), LocalEngine()) as group:
                results = group.call("add", {"x": 2.0}, deadline=120.0)
                assert [result["sum"] for result in results.values()] == [3.0, 3.0]
    server = get_fork_server(PRELOAD, ENVIRONMENT)
    assert psutil.Process(server.pid).num_threads() == 1
