"""Any function on every task: who runs it, what comes back, who is blamed."""

from __future__ import annotations

import json
import linecache
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import distbench
from distbench import Fault
from distbench.errors import BadInputError, ClusterError

pytestmark = pytest.mark.cluster
LONG = pytest.mark.nightly  # TensorFlow waits ten seconds for a peer that is gone


def read_place(word):
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    return word, config.get("task"), sorted(config.get("cluster", {}))


def count_threads():
    import tensorflow as tf

    return tf.config.threading.get_inter_op_parallelism_threads()


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


@pytest.mark.parametrize(("cluster", "threads"), [("mwms:3", 2), ("ps:2+1", 3)])
def test_more_workers_take_more_threads_only_of_parameter_servers(cluster, threads):
    assert set(distbench.run(count_threads, cluster).values()) == {threads}


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


_CELL = """
import tensorflow as tf

def halve_if_positive(value):
    @tf.function
    def halve(x):
        if x > 0.0:
            return x / 2.0
        return x

    return float(halve(tf.constant(value)))
"""


def test_a_cell_of_a_notebook_has_its_control_flow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AutoGraph found no source in the tasks, and ran `if` over a tensor as Python."""
    name = "<ipython-input-7-cell>"
    monkeypatch.setitem(
        linecache.cache, name, (len(_CELL), None, _CELL.splitlines(True), name)
    )
    found = {"__name__": "__main__"}
    exec(compile(_CELL, name, "exec"), found)
    results = distbench.run(found["halve_if_positive"], "one", args=(3.0,))
    assert results == {("worker", 0): 1.5}


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


def test_what_cannot_be_sent_back_is_named() -> None:
    with pytest.raises(BadInputError, match=r"worker-0.*sent back.*'generator'"):
        distbench.run(lambda: (n for n in range(3)), "one", timeout_s=60)


class SentOnly:
    """Can be pickled, and not be made of that again."""

    def __getstate__(self):
        return {"sent": True}

    def __setstate__(self, state):
        raise LookupError("nothing to attach to")


def test_what_was_sent_and_cannot_be_read_is_named() -> None:
    words = r"worker-0 was sent.*read here \(LookupError: nothing to attach to\)"
    with pytest.raises(BadInputError, match=words):
        distbench.run(SentOnly, "one", timeout_s=60)


def test_the_worker_that_dies_is_named() -> None:
    def die_on_the_first():
        if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
            os._exit(7)
        return sum_over_workers()

    with pytest.raises(ClusterError, match=r"worker-0.*7"):
        distbench.run(die_on_the_first, "mwms:2", timeout_s=60)


def take_steps(folder, count=4):
    """Steps of which this tells; those that it finished are in a file."""
    config = json.loads(os.environ["TF_CONFIG"])
    for step in range(count):
        distbench.report_step(step)
        (Path(folder) / f"{config['task']['index']}").write_text(str(step))
    return "done"


@pytest.mark.parametrize(
    ("fault", "lost", "last"),
    [
        ("kill:worker:1@2", True, "1"),
        ("stop:worker:1@2", True, "1"),
        ("delay=0.3:worker:1@2", False, "3"),
    ],
)
def test_the_others_go_on_without_a_task_that_is_lost(
    tmp_path: Path, fault: str, lost: bool, last: str
) -> None:
    results = distbench.run(take_steps, "mwms:2", args=(tmp_path,), faults=[fault])
    expected = {("worker", 0): "done", ("worker", 1): "done"}
    assert results == dict(list(expected.items())[: 1 if lost else 2])
    assert (tmp_path / "1").read_text() == last


def train_until_a_peer_is_lost(is_careful):
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def step():
        return strategy.reduce("sum", strategy.run(lambda: tf.ones([])), axis=None)

    done = 0
    try:
        for number in range(5):
            distbench.report_step(number)
            done += float(step()) == 2
    except tf.errors.UnavailableError:
        if not is_careful:
            raise
    return done


@LONG
def test_a_function_may_cope_with_a_lost_worker() -> None:
    fault = Fault.kill(1, 3)
    results = distbench.run(
        train_until_a_peer_is_lost, "mwms:2", args=(True,), faults=[fault]
    )
    assert results == {("worker", 0): 3}


@LONG
def test_who_does_not_cope_is_told_what_was_done() -> None:
    words = (
        r"^On purpose worker-1 was sent SIGKILL with step 3\. Task worker-0 .* raised "
        r"UnavailableError in job 'call', last at step 3"
    )
    with pytest.raises(ClusterError, match=words):
        distbench.run(
            train_until_a_peer_is_lost,
            "mwms:2",
            args=(False,),
            faults=["kill:worker:1@3"],
        )


def coordinate():
    import tensorflow as tf

    if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "worker":
        return "serves"
    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.TFConfigClusterResolver()
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def add():
        total.assign_add(1.0)

    for step in range(6):
        distbench.report_step(step)
        coordinator.schedule(add)
        coordinator.join()
    return float(total)


def test_a_coordinator_goes_on_without_a_worker() -> None:
    results = distbench.run(coordinate, "ps:2+1", faults=[Fault.kill(1, 2)])
    assert results == {("chief", 0): 6.0, ("worker", 0): "serves"}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("kill:worker:1@9", "nothing has happened, since no such step was told"),
        ("kill:worker:2@1", "'mwms:2@cpu' has no worker:2"),
        ("nan:replica:1@1", "what a function computes the bench does not know"),
        ("restart:worker:1@1", "no task can come back"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(
    tmp_path: Path, fault: str, words: str
) -> None:
    with pytest.raises(BadInputError, match=words):
        distbench.run(take_steps, "mwms:2", args=(tmp_path,), faults=[fault])


_THIEF = """
import socket, sys
sock = socket.socket()
sock.bind(("0.0.0.0", int(sys.argv[1])))
sock.listen()
print(flush=True)
sys.stdin.read()
"""


def find_own_port():
    place = json.loads(os.environ["TF_CONFIG"])
    return int(place["cluster"]["worker"][0].rpartition(":")[2])


def lose_port_at_first(tries):
    with tries.open("a+") as file:
        print(find_own_port(), file=file)
        file.seek(0)
        first = len(file.readlines()) == 1
    if first:
        subprocess.Popen(
            [sys.executable, "-c", _THIEF, str(find_own_port())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ).stdout.readline()
    return sum_over_workers()


def take_own_port(tries):
    with tries.open("a") as file:
        print("once", file=file)
    own = socket.create_server(("0.0.0.0", find_own_port()))
    return sum_over_workers(), own


def test_who_loses_its_port_begins_anew_with_another(tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    results = distbench.run(lose_port_at_first, "mwms:1", args=(tries,))
    assert results == {("worker", 0): 1.0}
    first, second = tries.read_text().split()
    assert first != second


def test_who_takes_its_port_itself_is_told_so_at_once(tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    with pytest.raises(ClusterError, match="Could not start gRPC server"):
        distbench.run(take_own_port, "mwms:1", args=(tries,))
    assert tries.read_text().split() == ["once"]


def bind(port, tries):
    with tries.open("a") as file:
        print("once", file=file)
    socket.socket().bind(("127.0.0.1", port))


@pytest.mark.parametrize("cluster", ["one", "mwms:1"])
def test_who_finds_another_port_taken_is_told_so_at_once(
    tmp_path: Path, cluster: str
) -> None:
    tries = tmp_path / "tries"
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(ClusterError, match="Address already in use"):
            distbench.run(bind, cluster, args=(taken, tries))
    assert tries.read_text().split() == ["once"]


def return_more_than_fits():
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, most))
    return bytes(1 << 20)


def test_what_does_not_fit_on_the_disk_is_no_bad_value() -> None:
    with pytest.raises(ClusterError, match="File too large"):
        distbench.run(return_more_than_fits, "one")


def test_what_cannot_be_sent_is_named() -> None:
    held = threading.Lock()
    with pytest.raises(BadInputError, match="cannot be sent"):
        distbench.run(lambda: held.locked(), "one")
