"""What a bench left behind: processes, files, shared memory and ports."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

MARK = "DISTBENCH_RELIABILITY"
"""A variable of the environment by which the processes of a run are known."""
SHARED = Path("/dev/shm")
"""Where shared memory is; what others put there meanwhile looks like the run's."""
_SERVER = "distbench.launch.forkserver"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What is left, in words; all empty where nothing is."""

    processes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    shared_memory: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = {
            "process": self.processes,
            "file": self.files,
            "shared memory": self.shared_memory,
            "port": self.ports,
        }
        found = [f"{kind} {name}" for kind, names in parts.items() for name in names]
        return ", ".join(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What there was before a run.

    Args:
        mark: Value of `MARK` in the environment of the run's processes.
        folder: The run's TMPDIR.
    """

    mark: str
    folder: Path
    files: frozenset[str] = field(default_factory=frozenset)
    shared: frozenset[str] = field(default_factory=frozenset)

    def find_leftovers(self, within_s: float) -> tuple[Leftovers, float]:
        """What is left, and after how many seconds nothing was, or all of them."""
        begin = time.monotonic()
        while True:
            found = self._look()
            passed_s = time.monotonic() - begin
            if not str(found) or passed_s > within_s:
                return found, passed_s
            time.sleep(0.02)

    def _look(self) -> Leftovers:
        mine = list(self._find_processes())
        return Leftovers(
            processes=tuple(_describe(process) for process in mine),
            files=tuple(sorted(_list(self.folder) - self.files)),
            shared_memory=tuple(sorted(_list(SHARED) - self.shared)),
            ports=tuple(_find_ports([psutil.Process(), *mine])),
        )

    def _find_processes(self) -> Iterator[psutil.Process]:
        """Processes of the run, but this one and its fork servers.

        What such a server started before the mark was given shows in its descendants.
        """
        forked = set(_list_forked())
        for process in psutil.process_iter():
            try:
                if process.pid == os.getpid() or _is_own_server(process):
                    continue
                if process.pid in forked or process.environ().get(MARK) == self.mark:
                    yield process
            except psutil.Error:
                continue


def _list_forked() -> Iterator[int]:
    """Pids of all that own fork servers started; either may end meanwhile."""
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if _is_own_server(process):
                yield from (child.pid for child in process.children(recursive=True))


def look_before(mark: str, folder: Path) -> Before:
    """Note what there is before a run."""
    return Before(mark=mark, folder=folder, files=_list(folder), shared=_list(SHARED))


def _list(folder: Path) -> frozenset[str]:
    return frozenset(path.name for path in folder.iterdir())


def _is_own_server(process: psutil.Process) -> bool:
    return process.ppid() == os.getpid() and _SERVER in process.cmdline()


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:60]}"
    except psutil.Error:
        return str(process.pid)


def _find_ports(processes: list[psutil.Process]) -> Iterator[str]:
    for process in processes:
        try:
            for connection in process.net_connections("inet"):
                yield f"{connection.laddr.port} of {process.pid}"
        except psutil.Error:
            continue
