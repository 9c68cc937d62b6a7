"""Whatever kills the bench, no process outlives it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launch_support import is_gone_soon

_BENCH = """
import json, sys
from distbench.cluster import ClusterSpec
from distbench.launch.forkclient import get_fork_server
from distbench.launch.rundir import RunDirectory
from distbench.launch.start import start_group

job, start, base = sys.argv[1:]
from pathlib import Path
group = start_group(
    ClusterSpec.parse("mwms:2"), run_directory=RunDirectory(Path(base)),
    entry="launch_entries:run", start=start,
)
grandchildren = group.call("start_grandchild", {}, timeout_s=20).values()
pids = [*group.pids.values(), *(result["pid"] for result in grandchildren)]
if start == "fork":
    pids.append(get_fork_server((), {}).pid)
print(json.dumps(pids), flush=True)
if job == "raise":
    raise SystemExit(0)
group.call(job, {}, timeout_s=600)
"""


@pytest.mark.first(3)
@pytest.mark.parametrize("ending", ["kill", "terminate", "exit"])
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
        pids = json.loads(bench.stdout.readline())
        if ending != "exit":
            ends = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM}
            bench.send_signal(ends[ending])
        bench.wait(timeout=20)
    assert [pid for pid in pids if not is_gone_soon(pid)] == []
