"""The job that holds the nodes ends with the bench, whatever became of Slurm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

DEAF = """\
#!/bin/sh
# As salloc in the queue of a controller that is gone.
trap '' TERM
echo "waiting as $$" >&2
while :; do sleep 0.05; done
"""
BENCH = """\
from distbench.agent import engine
from distbench.engines import slurm_job
from distbench.launch.engine import Demand

slurm_job._HEIR = slurm_job._HEIR.replace("-lt 40", "-lt 1")
engine._TOLD_S = 0.05
demand = Demand(tasks=2, least=2, gpus_per_task=0)
with slurm_job.Allocation(demand, lambda line: print(line, flush=True)):
    pass
"""
_TIMEOUT_S = 60


def test_a_command_that_is_deaf_is_killed_after_its_bench(tmp_path: Path) -> None:
    command = tmp_path / "salloc"
    command.write_text(DEAF)
    command.chmod(0o755)
    bench = subprocess.Popen(
        [sys.executable, "-c", BENCH],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    with bench:
        assert bench.stdout is not None
        told = next(line for line in bench.stdout if "waiting as" in line)
        salloc = psutil.Process(int(told.rpartition(" ")[2].strip(")\n")))
        assert salloc.is_running()
        bench.kill()
    gone, alive = psutil.wait_procs([salloc], timeout=_TIMEOUT_S)
    assert (gone, alive) == ([salloc], [])
