"""What this machine has, and what a cluster would need of it."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError, count_things
from distbench.gpus import count_gpus, count_sharers, list_models

TASK_BYTES = 120 * 2**20
"""Private memory of one forked task: TensorFlow's own beyond what forks share."""

SERVER_BYTES = 700 * 2**20
"""Memory of the fork server, in which TensorFlow is imported once."""

STEP_BYTES = 4 * 2**10
"""What a task keeps of a step until its trace is written, at least: of one scalar
variable without an optimizer it is 7 kB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the bench may use.

    Attributes:
        cores: CPU cores that this process may run on.
        memory_bytes: Memory that is free for new processes.
        gpus: Number of GPUs, each as often as replicas share it.
    """

    cores: int
    memory_bytes: int
    gpus: int

    def with_gpus(self, count: int) -> Machine:
        """The machine that somebody requires: this one, with so many GPUs or more."""
        return replace(self, gpus=max(self.gpus, count))

    def find_lack(self, spec: ClusterSpec, *, steps: int = 0) -> str:
        """What a cluster needs and the machine lacks, or an empty text.

        Args:
            spec: The cluster.
            steps: How many steps it trains at least, of which its tasks keep a trace.
        """
        resolved = spec.resolve(gpus=self.gpus, cpus=self.cores)
        if resolved.gpus_needed > self.gpus:
            return f"need {count_things(resolved.gpus_needed, 'GPU')}, have {self.gpus}"
        needed = SERVER_BYTES + TASK_BYTES * len(resolved.tasks)
        kept = STEP_BYTES * steps
        if needed + kept > self.memory_bytes:
            why = f" to keep {count_things(steps, 'step')}" if kept > needed else ""
            return (
                f"need {(needed + kept) / 2**30:.1f} GiB of free memory{why}, "
                f"have {self.memory_bytes / 2**30:.1f} GiB"
            )
        return ""


def find_current_folder() -> Path:
    """The folder that relative paths begin in.

    Raises:
        BadInputError: It has been removed.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise BadInputError(
            "The current folder does not exist any more. Expected: one in which tasks "
            "can run as well. Change to another."
        ) from None


_CGROUP_FILES = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
"""A container's limit, which the machine's own figures do not show."""


def measure_memory() -> tuple[int, int]:
    """How much memory is free here, and how much there is, in bytes."""
    import psutil

    memory = psutil.virtual_memory()
    free, total = int(memory.available), int(memory.total)
    for name in _CGROUP_FILES:
        # There may be no such group, or one that says "max". What it holds says little:
        # files that were read once count too.
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(name).read_text()))
    return min(free, total), total


def inspect_machine() -> Machine:
    """Look at this machine without starting TensorFlow or a CUDA driver."""
    return Machine(
        cores=count_cores(),
        memory_bytes=measure_memory()[0],
        gpus=count_gpus() * count_sharers(),
    )


def describe_bench(engine: str = "local") -> dict[str, Any]:
    """What is known of where a check ran before any task tells more: versions, machine.

    Args:
        engine: Who starts tasks.
    """
    return {
        "distbench": version("distbench"),
        "python": sys.version.split()[0],
        "machine": dict(describe_machine(engine)),
    }


def describe_machine(engine: str = "local") -> Mapping[str, Any]:
    """What tells kinds of machines apart, for times that are to be compared.

    No name of a host is in it: nodes of a queue and containers of a runner change
    theirs from night to night.

    Args:
        engine: Who starts tasks: on nodes of its own they take other times.
    """
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _find_cpu(),
        "cores": count_cores(),
        "gpus": list_models(),
        **({} if engine == "local" else {"engine": engine}),
    }


def count_cores() -> int:
    """CPU cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _find_cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.machine()
