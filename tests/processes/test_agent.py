"""Tasks on other hosts: agents with folders and loopback addresses of their own."""

from __future__ import annotations

import errno
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from agent_support import FolderEngine
from launch_support import FIRST, SECOND, TIMEOUT_S, Starter, open_starter
from waiting import comes_true, is_gone_soon

from distbench.agent.mirror import Mirror
from distbench.agent.versions import find_difference
from distbench.cluster import Task
from distbench.errors import BadInputError, ClusterError
from distbench.launch import group as group_module
from distbench.launch.failure import TaskFailedError
from distbench.launch.injury import Injury
from distbench.launch.rundir import RunDirectory


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nodes")


@pytest.fixture(scope="module")
def engine(base: Path) -> Iterator[FolderEngine]:
    with FolderEngine(base) as engine:
        yield engine


@pytest.fixture
def start(run_directory: RunDirectory, engine: FolderEngine) -> Iterator[Starter]:
    with open_starter(run_directory) as starter:
        yield lambda spec="mwms:2", **options: starter(
            spec, **{"engine": engine, **options}
        )


def test_each_task_answers_from_its_own_address(start: Starter) -> None:
    results = start().call("describe", {}, deadline=TIMEOUT_S)
    addresses = results[FIRST]["addresses"]["worker"]
    hosts = {address.partition(":")[0] for address in addresses}
    assert hosts == {"127.0.0.11", "127.0.0.12"}
    for task, seen in results.items():
        assert json.loads(seen["environment"]["TF_CONFIG"]) == {
            "cluster": seen["addresses"],
            "task": {"type": "worker", "index": task.index},
        }


def test_a_task_sees_its_nodes_variables_and_those_that_change_what_is_computed(
    start: Starter, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_DETERMINISTIC_OPS", "1")
    monkeypatch.setenv("OF_THE_BENCH", "1")
    results = start("one", environment={"GIVEN": "1"}).call(
        "describe", {}, deadline=TIMEOUT_S
    )
    seen = results[FIRST]["environment"]
    assert seen["HOME"].startswith(str(base))
    assert (seen["TF_DETERMINISTIC_OPS"], seen["GIVEN"]) == ("1", "1")
    assert not {"OF_THE_BENCH", "DISTBENCH_AGENT", "TF_CONFIG"} & set(seen)


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_files_that_a_message_names_travel_both_ways(
    start: Starter, how: str, run_directory: RunDirectory, base: Path
) -> None:
    group, folder = start(start=how), run_directory.make_folder("shared-by-nobody")
    (folder / "bench.txt").write_text("from the bench")
    payload = {"folder": str(folder), "text": "from a task"}
    answers = group.call("write", payload, deadline=TIMEOUT_S)
    path = folder / "worker-0.txt"
    assert path.read_text() == "from a task"
    # A path that a task names is the bench's own again.
    assert answers[FIRST]["path"] == str(path)
    assert json.loads(answers[FIRST]["nested"]) == {"path": str(path)}
    payload = {"nested": json.dumps({"folder": str(folder)})}
    seen = group.call("read", payload, tasks=[SECOND], deadline=TIMEOUT_S)
    assert seen[SECOND] == {
        "bench.txt": "from the bench",
        "worker-0.txt": "from a task",
        "worker-1.txt": "from a task",
    }
    assert len(list(base.glob("*/*/run-*/shared-by-nobody/bench.txt"))) == 2
    group.close()
    assert comes_true(lambda: not list(base.glob("*/*/run-*")))


def test_a_job_that_says_what_it_reads_gets_nothing_else(
    start: Starter, run_directory: RunDirectory
) -> None:
    group, folder = start("one"), run_directory.make_folder("read-in-part")
    for name in ("wanted.txt", "other.txt"):
        (folder / name).write_text(name)
    payload = {
        "nested": json.dumps({"folder": str(folder)}),
        "reads": [str(folder / "wanted.txt")],
    }
    seen = group.call("read", payload, deadline=TIMEOUT_S)[FIRST]
    assert seen == {"wanted.txt": "wanted.txt"}


def test_a_failure_comes_with_its_log_and_the_stacks_of_the_others(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "_GIVE_UP_S", 0.0)
    payload = {"worker-0": {"do": "fail"}, "worker-1": {"do": "wait"}}
    with pytest.raises(TaskFailedError, match="a bad subject") as failure:
        start().call("mixed", payload, deadline=TIMEOUT_S)
    assert (failure.value.task, failure.value.kind) == (FIRST, "subject")
    assert (failure.value.step, failure.value.phase) == (2, "slot")
    assert failure.value.log_tails[FIRST] == "about to fail"
    assert "in wait" in failure.value.stacks[SECOND]


def test_what_a_dying_task_printed_last_is_not_lost(start: Starter) -> None:
    with pytest.raises(TaskFailedError, match="ended with exit code 3") as failure:
        start("one").call("exit", {}, deadline=TIMEOUT_S)
    assert failure.value.log_tails[FIRST].endswith("line 99")


def test_a_fork_server_of_a_node_that_dies_is_named(
    start: Starter, engine: FolderEngine
) -> None:
    for _ in range(4):
        group = start("one")
        agents = len(engine.agents)
        wait = group.submit("wait", {}, deadline=TIMEOUT_S)
        psutil.Process(group.pids[FIRST]).parent().kill()
        words = "its fork server died: it was killed"
        with pytest.raises(TaskFailedError, match=words):
            wait()
        # The agent starts another one, whatever it heard of first.
        start("one").call("echo", {}, deadline=TIMEOUT_S)
        assert len(engine.agents) == agents


def test_what_a_killed_task_took_down_last_is_told(start: Starter) -> None:
    payload = {"worker-0": {"do": "kill"}, "worker-1": {"do": "wait"}}
    with pytest.raises(TaskFailedError, match="last at collective 7") as failure:
        start().call("mixed", payload, deadline=TIMEOUT_S)
    assert failure.value.recent[FIRST] == ("collective 7, all_reduce",)


def test_a_stopped_task_is_seen_from_afar(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "_GIVE_UP_S", 0.0)
    with pytest.raises(TaskFailedError, match="was stopped by a signal"):
        start("one").call("stop", {}, deadline=TIMEOUT_S)


def test_a_greedy_task_is_seen_from_afar(start: Starter) -> None:
    with pytest.raises(TaskFailedError, match="MiB of memory, and 8 MiB a task"):
        start("one", memory_bytes=1 << 23).call(
            "take_memory", {"size_bytes": 1 << 26}, deadline=TIMEOUT_S
        )


def test_a_task_that_was_killed_returns_at_its_address(start: Starter) -> None:
    chief, worker = Task(role="chief", index=0), Task(role="worker", index=0)
    group = start("ps:1+1")
    before = group.call("describe", {}, tasks=[worker], deadline=TIMEOUT_S)[worker]
    kill = Injury(number=signal.SIGKILL, step=1, task=worker, restarts=True)
    group.injure(kill)
    group.call("take_steps", {"waits": [1, 2]}, tasks=[chief], deadline=TIMEOUT_S)

    def is_back() -> bool:
        group.call("echo", {}, tasks=[chief], deadline=TIMEOUT_S)
        return group.pids[worker] != before["pid"]

    assert comes_true(is_back)
    after = group.call("describe", {}, tasks=[worker], deadline=TIMEOUT_S)[worker]
    assert after["addresses"] == before["addresses"]
    seen = group.call("listen", {}, tasks=[worker], deadline=TIMEOUT_S)[worker]
    assert seen["every interface"] == after["addresses"]["worker"][0].split(":")[0]
    assert group.injury.endswith("it was started again")


def test_a_lost_node_is_named_and_replaced(
    start: Starter, engine: FolderEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "_GIVE_UP_S", 0.0)
    group = start()
    pids = group.call("describe", {}, deadline=TIMEOUT_S)
    wait = group.submit("wait", {}, deadline=TIMEOUT_S)
    for agent in engine.agents:
        if agent.address == "127.0.0.12":
            agent.popen.kill()
    with pytest.raises(
        TaskFailedError, match=r"was lost \(node \S+ \(127.0.0.12\) is gone\)"
    ) as failure:
        wait()
    assert failure.value.kind == "died"
    # Its processes go with the agent.
    assert is_gone_soon(pids[failure.value.task]["pid"])
    assert len(start("ps:2+1").call("echo", {}, deadline=TIMEOUT_S)) == 4
    # So that an engine places what follows elsewhere.
    assert {a.address for a in engine.agents if a.is_lost} == {"127.0.0.12"}


def test_a_full_disk_of_the_bench_is_not_laid_at_the_nodes_door(
    start: Starter, monkeypatch: pytest.MonkeyPatch, run_directory: RunDirectory
) -> None:
    def fail(self: Mirror, name: str, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    group, folder = start("one"), run_directory.make_folder("full")
    monkeypatch.setattr(Mirror, "write", fail)
    with pytest.raises(TaskFailedError, match=r"cannot be heard: .*No space left"):
        group.call("write", {"folder": str(folder), "text": "x"}, deadline=TIMEOUT_S)


def test_a_full_disk_of_a_node_is_named(
    tmp_path: Path, run_directory: RunDirectory
) -> None:
    # Python ignores the signal, and gets an error.
    few = ("sh", "-c", 'ulimit -f 100; exec "$@"', "sh")
    large = run_directory.make_folder("large") / "file"
    large.write_bytes(bytes(1 << 20))
    told: list[str] = []
    with FolderEngine(tmp_path, enter=few) as engine, open_starter(run_directory) as go:
        engine.log = told.append
        group = go("one", engine=engine)
        words = r"was lost \(node \S+ \(\S+\) cannot go on: .*File too large"
        with pytest.raises(TaskFailedError, match=words):
            group.call("echo", {"file": str(large)}, deadline=TIMEOUT_S)
        go("one", engine=engine)
    assert [line for line in told if "has not ended" in line] == []
    assert [line for line in told if "File too large" in line] == told[:1]


def test_an_agent_serves_one_group_after_another(
    start: Starter, engine: FolderEngine
) -> None:
    start("ps:1+1").close()
    count = len(engine.agents)
    start("mwms:2").close()
    start("ps:1+1").close()
    assert len(engine.agents) == count


def test_an_import_that_fails_is_named_with_its_node(start: Starter) -> None:
    with pytest.raises(ClusterError, match=r"On node .*could not import not_there"):
        start("one", preload=("not_there",))


def test_a_public_node_is_refused(tmp_path: Path, run_directory: RunDirectory) -> None:
    refused = pytest.raises(BadInputError, match=r"\(8.8.8.11\) .*--allow-public")
    with (
        FolderEngine(tmp_path, hosts="8.8.8.{}") as engine,
        open_starter(run_directory) as start,
        refused,
    ):
        start("one", engine=engine)


def test_a_public_node_may_be_allowed(
    tmp_path: Path, run_directory: RunDirectory
) -> None:
    engine = FolderEngine(tmp_path, hosts="8.8.8.{}", allow_public=True)
    with engine, open_starter(run_directory) as start:
        start("one", engine=engine)


def test_another_version_is_named() -> None:
    ours = {"tensorflow": "2.21.0", "numpy": "2.4.6", "keras": "3.0"}
    assert find_difference(ours, dict(ours)) == ""
    theirs = {"tensorflow": "2.20.0", "numpy": "2.4.6"}
    assert find_difference(ours, theirs) == (
        "keras not at all in place of 3.0, tensorflow 2.20.0 in place of 2.21.0"
    )
