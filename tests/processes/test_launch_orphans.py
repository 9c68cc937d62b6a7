"""Whatever kills the bench, no process, port or file outlives it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_support import PATH
from bench_to_kill import OWN
from waiting import comes_true, is_gone_soon


@contextmanager
def start_bench(
    how: str, job: str, base: Path
) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """A bench in a process group of its own, with what it says is its own."""
    bench = subprocess.Popen(
        [sys.executable, "-m", "bench_to_kill", how, job, str(base)],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": PATH, "PATH": os.environ["PATH"]},
        start_new_session=True,
    )
    with bench:
        assert bench.stdout is not None
        try:
            yield bench, json.loads(bench.stdout.readline())
        finally:
            bench.kill()


def end_bench(bench: subprocess.Popen[bytes], ending: str) -> None:
    """End it, where it does not exit by itself."""
    if ending == "interrupt":
        # As Ctrl-C does: all of its group get the signal.
        os.killpg(bench.pid, signal.SIGINT)
    elif ending != "exit":
        ends = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM}
        bench.send_signal(ends[ending])
    bench.wait(timeout=60)


@pytest.mark.first(4)
@pytest.mark.parametrize("ending", ["kill", "terminate", "interrupt", "exit"])
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_nothing_outlives_the_bench(tmp_path: Path, start: str, ending: str) -> None:
    job = "" if ending == "exit" else "wait_stubbornly"
    with start_bench(start, job, tmp_path) as (bench, told):
        end_bench(bench, ending)
    assert [pid for pid in told["pids"] if not is_gone_soon(pid)] == []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((OWN, told["port"]))
    assert comes_true(lambda: not any(tmp_path.iterdir()))
    segments = [Path("/dev/shm", name) for name in told["shared"]]
    assert len(segments) == 2
    assert comes_true(lambda: not any(segment.exists() for segment in segments))


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_what_is_stopped_does_not_outlive_the_bench(tmp_path: Path, start: str) -> None:
    """A stopped fork server reads no EOF, and its tasks live as long as it does."""
    with start_bench(start, "wait_stubbornly", tmp_path) as (_, told):
        pids = told["pids"]
        # Its own children: the fork server, or the two tasks.
        for pid in pids[-1:] if start == "fork" else pids[:2]:
            os.kill(pid, signal.SIGSTOP)
    left = [pid for pid in pids if not is_gone_soon(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def test_nothing_is_left_on_a_node_of_a_bench_that_was_killed(tmp_path: Path) -> None:
    with start_bench("agents", "wait_stubbornly", tmp_path) as (bench, told):
        end_bench(bench, "kill")
    assert len(told["pids"]) == 6
    assert [pid for pid in told["pids"] if not is_gone_soon(pid)] == []
    folders = [f for f in tmp_path.glob("node-*/*") if f.name.startswith("distbench-")]
    assert comes_true(lambda: not any(folder.exists() for folder in folders))
