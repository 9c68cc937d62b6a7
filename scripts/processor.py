"""What a bench costs: itself, its fork servers, and the tasks that they have ended."""

from __future__ import annotations

import psutil

_SERVER = "distbench.launch.forkserver"


def list_benches() -> list[psutil.Process]:
    """This process and its fork servers."""
    own = psutil.Process()
    return [own, *(child for child in own.children() if _SERVER in child.cmdline())]


def measure_processor() -> float:
    """Seconds of processor time so far: the bench, its servers, and their tasks."""
    times = [process.cpu_times() for process in list_benches()]
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)
