"""Whatever kills the bench, no process, port or file outlives it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launch_support import comes_true, is_gone_soon

_BENCH = """
import json, signal, sys
# Behind a shell's & it would be ignored, and so would the test's.
signal.signal(signal.SIGINT, signal.default_int_handler)
from distbench.cluster import ClusterSpec
from distbench.launch.engine import Request
from distbench.launch.local import LocalEngine
from distbench.launch.servers import get_fork_server
from distbench.launch.rundir import RunDirectory
from distbench.launch.start import start_group

job, start, base = sys.argv[1:]
from pathlib import Path
directory = RunDirectory(Path(base))
request = Request(
    spec=ClusterSpec.parse("mwms:2"), directory=directory,
    entry="launch_entries:run", start=start,
)
group = start_group(request, LocalEngine())
from distbench.launch.ports import lease_ports
lease = lease_ports(1)
shared = group.call("share_memory", {}, deadline=20).values()
names = [result["name"] for result in shared]
grandchildren = group.call("start_grandchild", {}, deadline=20).values()
pids = [*group.pids.values(), *(result["pid"] for result in grandchildren)]
if start == "fork":
    pids.append(get_fork_server((), {}).pid)
print(json.dumps([pids, *lease.ports, names]), flush=True)
if job == "raise":
    raise SystemExit(0)
group.call(job, {}, deadline=600)
"""


@pytest.mark.first(4)
@pytest.mark.parametrize("ending", ["kill", "terminate", "interrupt", "exit"])
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_nothing_outlives_the_bench(tmp_path: Path, start: str, ending: str) -> None:
    job = "raise" if ending == "exit" else "wait_stubbornly"
    bench = subprocess.Popen(
        [sys.executable, "-c", _BENCH, job, start, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(Path(__file__).parent)},
    )
    with bench:
        assert bench.stdout is not None
        pids, port, shared = json.loads(bench.stdout.readline())
        if ending != "exit":
            ends = {
                "kill": signal.SIGKILL,
                "terminate": signal.SIGTERM,
                "interrupt": signal.SIGINT,
            }
            bench.send_signal(ends[ending])
        try:
            bench.wait(timeout=20)
        finally:
            bench.kill()
    assert [pid for pid in pids if not is_gone_soon(pid)] == []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", port))
    assert is_empty_soon(tmp_path)
    segments = [Path("/dev/shm", name) for name in shared]
    assert len(segments) == 2
    assert comes_true(lambda: not any(segment.exists() for segment in segments))


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_what_is_stopped_does_not_outlive_the_bench(tmp_path: Path, start: str) -> None:
    """A stopped fork server reads no EOF, and its tasks live as long as it does."""
    bench = subprocess.Popen(
        [sys.executable, "-c", _BENCH, "wait_stubbornly", start, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(Path(__file__).parent)},
    )
    with bench:
        assert bench.stdout is not None
        pids, _, _ = json.loads(bench.stdout.readline())
        try:
            # Its own children: the fork server, or the two tasks.
            for pid in pids[-1:] if start == "fork" else pids[:2]:
                os.kill(pid, signal.SIGSTOP)
        finally:
            bench.kill()
    left = [pid for pid in pids if not is_gone_soon(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def is_empty_soon(folder: Path, within_s: float = 20.0) -> bool:
    deadline = time.monotonic() + within_s
    while any(folder.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(folder.iterdir())
