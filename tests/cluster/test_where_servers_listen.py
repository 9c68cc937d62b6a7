"""TensorFlow's servers listen where the bench says, and not on every interface."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest
from agent_support import FolderEngine

import distbench
from distbench import call
from distbench.launch import local
from distbench.verdict import Status, describe_verdict

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        sys.platform != "linux", reason="need Linux to have a say in what a task binds"
    ),
]
CLUSTERS = ["mwms:2", "ps:2+1"]


def look_around():
    """Start this task's server; where all tasks listen, and whom a stranger reaches.

    Every address that begins with 127 is this machine's, and what listens on all of its
    interfaces answers at each of them.
    """
    import tensorflow as tf

    config = json.loads(os.environ["TF_CONFIG"])
    if "chief" not in config["cluster"]:
        tf.distribute.MultiWorkerMirroredStrategy()
    elif config["task"]["type"] == "chief":
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        tf.distribute.ParameterServerStrategy(resolver)
    addresses = [a.split(":") for found in config["cluster"].values() for a in found]
    reached = []
    for host, port in addresses:
        assert can_be_reached_soon(host, int(port))
        reached.append(can_connect("127.0.0.99", int(port)))
    tasks = psutil.Process(os.getppid()).children()
    listeners = {
        (connection.laddr.ip, connection.laddr.port)
        for task in tasks
        for connection in task.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    return addresses, listeners, reached


def can_be_reached_soon(host, port):
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:
        if can_connect(host, port):
            return True
        time.sleep(0.01)
    return False


def can_connect(host, port):
    try:
        socket.create_connection((host, port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_nothing_listens_beyond_loopback(cluster: str) -> None:
    for addresses, listeners, reached in distbench.run(look_around, cluster).values():
        assert {int(port) for _, port in addresses} == {port for _, port in listeners}
        assert {ip for ip, _ in listeners} == {"::ffff:127.0.0.1"}
        assert not any(reached)


def test_the_look_around_would_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "LOOPBACK", "")
    for _, listeners, reached in distbench.run(look_around, "mwms:2").values():
        assert {ip for ip, _ in listeners} == {"::"}
        assert all(reached)


@pytest.mark.nightly
def test_on_other_hosts_servers_listen_on_the_hosts_own_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FolderEngine(tmp_path) as engine:
        monkeypatch.setattr(call, "open_engine", lambda *_, **__: nullcontext(engine))
        found = distbench.run(look_around, "mwms:2")
    for index, host in enumerate(("127.0.0.11", "127.0.0.12")):
        addresses, listeners, reached = found["worker", index]
        assert addresses[index][0] == host
        assert {ip for ip, _ in listeners} == {f"::ffff:{host}"}
        assert not any(reached)


def test_a_verdict_says_where_servers_listened() -> None:
    verdict = distbench.check(make_optimizer, "mwms:2", tier="bounded")
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert verdict.environment["settings"]["listens_on"] == "127.0.0.1"


def make_optimizer():
    import tf_keras

    return tf_keras.optimizers.legacy.SGD(0.0625)
