"""The same scenarios on the nodes of Slurm and of Ray, which are this machine's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray_nodes
import slurm_nodes
from waiting import comes_true, is_gone_soon

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAM = str(HERE / "bench_program.py")
MODULES = {"slurm": slurm_nodes, "ray": ray_nodes}
TIMEOUT_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """An engine with nodes, and how programs are to be started that use it."""

    engine: str
    environment: dict[str, str]

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.environment, **variables},
        )

    def run(self, *words: str, **variables: str) -> list[dict[str, Any]]:
        """What a bench says, in lines of JSON."""
        with self.start(*words, **variables) as process:
            try:
                said, errors = process.communicate(timeout=TIMEOUT_S)
            finally:
                process.kill()
        assert process.returncode == 0, errors
        return [json.loads(line) for line in said.splitlines()]

    def use(self, spec: str, action: str, **variables: str) -> list[dict[str, Any]]:
        lines = self.run(PROGRAM, self.engine, spec, action, **variables)
        return [line for line in lines if "note" not in line]


# Ray takes a minute to start, and what is asked of both engines is the same.
@pytest.fixture(
    scope="module",
    params=[pytest.param("ray", marks=pytest.mark.nightly), "slurm"],
)
def nodes(request: pytest.FixtureRequest) -> Iterator[Nodes]:
    module = MODULES[request.param]
    if lack := module.find_lack():
        pytest.skip(lack)
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "processes")])
    with module.open_nodes() as variables:
        environment = {**os.environ, **variables, "PYTHONPATH": path}
        yield Nodes(engine=request.param, environment=environment)


@pytest.fixture(scope="module")
def check_locally(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    file = tmp_path_factory.mktemp("local") / "verdict.json"
    return cache(lambda *words: check(dict(os.environ), "local", file, *words))


def check(environment: dict[str, str], engine: str, file: Path, *words: str) -> Any:
    target = f"{ROOT / 'docs' / 'examples' / 'my_optimizer.py'}:make_clipped_sgd"
    where = ("--engine", engine, "--json", str(file))
    done = subprocess.run(
        [sys.executable, "-m", "distbench", "check", target, *words, *where],
        capture_output=True,
        text=True,
        env=environment,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 1, done.stderr
    verdict = json.loads(file.read_text())
    for name in ("environment", "begun", "options"):
        del verdict[name]
    for part in (verdict, *verdict["runs"]):
        del part["seconds"]
    return verdict


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("-c", "mwms:2", "--workload", "linear"), id="smoke"),
        pytest.param(
            ("-c", "mwms:2", "-c", "ps:2+1", "-c", "mirrored:2", "-j", "3"),
            id="three-at-a-time",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_verdict_is_that_of_the_local_engine(
    nodes: Nodes,
    words: tuple[str, ...],
    check_locally: Callable[..., Any],
    tmp_path: Path,
) -> None:
    found = check(nodes.environment, nodes.engine, tmp_path / "found.json", *words)
    local = check_locally(*(word for word in words if word not in ("-j", "3")))
    assert found == local
    assert local["runs"][0]["findings"][0]["code"] == "clip-before-reduction"


@pytest.mark.nightly
def test_the_rest_of_a_check_goes_on_without_a_lost_node(
    nodes: Nodes, tmp_path: Path
) -> None:
    target = f"{HERE / 'lost_node_program.py'}:LosesANode"
    file = tmp_path / "verdict.json"
    words = ["-c", "mwms:2", "-c", "mwms:3", "-c", "mirrored:2", "-c", "ps:2+1"]
    where = ["--engine", nodes.engine, "-j", "2", "--json", str(file)]
    with nodes.start("-m", "distbench", "check", target, *words, *where) as bench:
        _, errors = bench.communicate(timeout=TIMEOUT_S)
    assert bench.returncode == 3, errors
    runs = json.loads(file.read_text())["runs"]
    statuses = {run["cluster"]: run["status"] for run in runs}
    expected = dict.fromkeys(words[1::2], "pass")
    assert statuses == {**expected, "mwms:3": "error"}
    (lost,) = {run["message"] for run in runs if run["status"] == "error"}
    assert re.match(r"Task worker-1 .* was lost \(node \S+ \(127.*\) is gone\)", lost)


_FUNCTION = """
import json, sys, distbench
factor = 7
seen = distbench.run(lambda x: factor * x, "ps:1+1", args=(6,), engine=sys.argv[1])
print(json.dumps({f"{role}-{index}": value for (role, index), value in seen.items()}))
"""


@pytest.mark.nightly
def test_a_function_is_run_on_every_node(nodes: Nodes) -> None:
    (seen,) = nodes.run("-c", _FUNCTION, nodes.engine)
    assert seen == {"chief-0": 42, "worker-0": 42}


@pytest.mark.nightly
def test_tasks_are_on_different_nodes_and_nothing_is_left(nodes: Nodes) -> None:
    (seen,) = nodes.use("mwms:3", "describe")
    hosts = {place.partition(":")[0] for place in seen["addresses"]["worker"]}
    assert hosts == {"127.0.0.11", "127.0.0.12", "127.0.0.13"}
    assert not any(psutil.pid_exists(pid) for pid in seen["pids"])


@pytest.mark.nightly
def test_a_lost_node_is_an_error_that_names_it(nodes: Nodes) -> None:
    first, failed, after = nodes.use("mwms:2", "lose")
    lost = first["addresses"]["worker"][-1].partition(":")[0]
    assert failed["kind"] == "died"
    assert f"({lost}) is gone" in failed["message"]
    # What comes next has another agent.
    assert after == {"again": 2}


@pytest.mark.nightly
def test_each_worker_has_gpus_of_its_own(nodes: Nodes) -> None:
    (seen,) = nodes.use("mwms:3x2@gpu", "describe")
    assert seen["gpus"] == 6
    assert set(map(len, map(split, seen["visible"].values()))) == {2}
    (seen,) = nodes.use("mwms:4x1@gpu", "describe")
    hosts = [place.partition(":")[0] for place in seen["addresses"]["worker"]]
    places = list(zip(hosts, seen["visible"].values(), strict=True))
    assert len(set(places)) == 4
    assert set(map(len, map(split, seen["visible"].values()))) == {1}


def split(visible: str) -> set[str]:
    return set(visible.split(","))


@pytest.mark.nightly
def test_nothing_is_left_of_a_bench_that_was_killed(nodes: Nodes) -> None:
    with nodes.start(PROGRAM, nodes.engine, "mwms:2", "wait") as bench:
        try:
            assert bench.stdout is not None
            lines = (json.loads(line) for line in bench.stdout)
            seen = next(line for line in lines if "note" not in line)
        finally:
            bench.kill()
    assert [pid for pid in seen["pids"] if not is_gone_soon(pid)] == []
    # What they held is free again.
    assert comes_true(lambda: len(nodes.use("mwms:3x2@gpu", "describe")) == 1)


@pytest.mark.nightly
def test_two_benches_never_take_more_than_there_is(nodes: Nodes) -> None:
    first = nodes.start(PROGRAM, nodes.engine, "mwms:4x1@gpu", "wait")
    second = None
    try:
        assert first.stdout is not None
        lines = (json.loads(line) for line in first.stdout)
        assert any("pids" in line for line in lines)
        second = nodes.start(PROGRAM, nodes.engine, "mwms:4x1@gpu", "describe")
        assert second.stdout is not None
        assert "waiting for" in json.loads(second.stdout.readline())["note"]
        first.kill()
        assert any("pids" in json.loads(line) for line in second.stdout)
        assert second.wait(TIMEOUT_S) == 0
    finally:
        for bench in filter(None, (first, second)):
            bench.kill()
            bench.communicate()


@pytest.mark.nightly
def test_who_waits_for_nodes_says_so_and_leaves_the_queue(nodes: Nodes) -> None:
    with nodes.start(PROGRAM, nodes.engine, "mwms:64", "describe") as bench:
        assert bench.stdout is not None
        note = json.loads(bench.stdout.readline())["note"]
        bench.terminate()
    assert note.startswith("waiting for")
    assert "64" in note
    if nodes.engine == "slurm":
        assert comes_true(lambda: not list_jobs(nodes))
    nodes.use("mwms:3x2@gpu", "describe")


def list_jobs(nodes: Nodes) -> list[str]:
    command = ["squeue", "--noheader", "--format=%i"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=nodes.environment, check=True
    )
    return done.stdout.split()


@pytest.mark.nightly
@pytest.mark.parametrize("nodes", ["slurm"], indirect=True)
def test_a_job_that_is_there_is_used(nodes: Nodes) -> None:
    job = ["salloc", "--nodes=2", "--ntasks=2"]
    done = subprocess.run(
        [*job, sys.executable, PROGRAM, nodes.engine, "mwms:4", "describe"],
        capture_output=True,
        text=True,
        env=nodes.environment,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    places = json.loads(done.stdout)["addresses"]["worker"]
    assert len(places) == 4
    assert len({place.partition(":")[0] for place in places}) == 2


@pytest.mark.nightly
@pytest.mark.parametrize("nodes", ["slurm"], indirect=True)
def test_scenarios_wait_for_each_other_where_there_is_room_for_one(
    nodes: Nodes,
) -> None:
    target = f"{ROOT / 'scenarios' / 'optimizers' / 'sgd.py'}:make_sgd"
    words = ["-c", "mwms:2", "-c", "mwms:3", "-j", "3", "--engine", "slurm"]
    # The allocation has two processors for each of three tasks.
    job = ["salloc", "--nodes=1-3", "--ntasks=3", "--cpus-per-task=2"]
    done = subprocess.run(
        [*job, sys.executable, "-m", "distbench", "check", target, *words],
        capture_output=True,
        text=True,
        env=nodes.environment,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("[")]
    # Each begins when the one before has ended.
    assert [line.partition("]")[0] for line in lines] == sorted(
        line.partition("]")[0] for line in lines
    )
