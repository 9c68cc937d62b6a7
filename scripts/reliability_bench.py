"""Benches of their own that are killed, crowded, or run where something is missing."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from leftovers import MARK
from measured import ROOT
from reliability_crowd import LAUNCHES, SUITES
from reliability_many import KINDS, SCENARIOS
from reliability_program import TOLD

_STARTS_S = 180.0
_QUOTED = 600
"""Characters that are kept of what was said."""
_PROGRAM = Path(__file__).with_name("reliability_program.py")
_CHECK = [
    sys.executable,
    "-m",
    "distbench",
    "check",
    "-c",
    "mwms:3",
    "--timeout",
    "150",
]
_TEST = """
import os, signal
def kill(pid):
    os.kill(pid, signal.SIGKILL)
    signal.pause()
def test_that_crashes(distbench):
    distbench.run(kill, "mwms:2", args=(os.getpid(),), timeout_s=60)
def test_that_comes_after(distbench):
    assert set(distbench.run(lambda: 1, "mwms:2").values()) == {1}
"""
Interfere = Callable[["subprocess.Popen[bytes]", Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchCase:
    """A bench in a process of its own.

    Attributes:
        name: What the table calls it.
        how: How it is done.
        said: Pattern that its output has to match.
        codes: The exit codes that it may end with.
        command: What is run; the test file's folder stands for `{folder}`.
        interfere: What is done to it, None where nothing is.
        around: Shell commands that are run before it in namespaces of their own.
        counts: Whether its last line tells what it counted; such a case takes its time,
            and is run where it is asked for by name.
        ends_s: Its deadline, in seconds.
        enough: It is run until what it counts first comes to this, over all runs; 0
            leaves that to who runs it.
    """

    name: str
    how: str
    said: str
    codes: tuple[int, ...]
    command: Sequence[str] = (*_CHECK, f"{_PROGRAM}:Stalls")
    interfere: Interfere | None = None
    around: str = ""
    counts: bool = False
    ends_s: float = 120.0
    enough: int = 0


def run_bench(case: BenchCase, folder: Path, mark: str) -> dict[str, Any]:
    """Run a case once; see `reliability_tasks.run_task_case`."""
    told = folder / "told"
    told.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as elsewhere:
        place = Path(elsewhere)
        (place / "test_crash.py").write_text(_TEST)
        environment = {
            **os.environ,
            MARK: mark,
            TOLD: str(place / "told"),
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "scripts"))),
        }
        command = [word.format(folder=place) for word in case.command]
        if case.around:
            script = f'{case.around.format(root=ROOT)}; exec "$@"'
            spaces = ["unshare", "--mount", "--net", "--uts"]
            command = [*spaces, "sh", "-ec", script, "sh", *command]
        with (place / "output").open("w+b") as output:
            bench = subprocess.Popen(
                # What a shell starts with & ignores SIGINT, and so do its children.
                ["env", "--default-signal=INT", *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=place,
            )
            try:
                if case.interfere is not None:
                    case.interfere(bench, place / "told")
                begin = time.monotonic()
                code: int | None = bench.wait(case.ends_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                bench.kill()
                bench.wait()
            end = time.monotonic()
            output.seek(0)
            said = output.read().decode(errors="replace")
    match = re.search(case.said, said, re.DOTALL)
    right = code in case.codes and match is not None
    lines = [line for line in said.splitlines() if line.strip()]
    return {
        "case": case.name,
        "how": case.how,
        "kind": "event" if case.interfere else "",
        "status": f"did not end within {case.ends_s:g} s"
        if code is None
        else f"exit code {code}",
        "said": _quote(said, match) if case.said or not right else "",
        "counts": _read_counts(lines) if case.counts else {},
        "right": right,
        "seconds": round(end - begin, 2),
    }


def _quote(said: str, match: re.Match[str] | None) -> str:
    """What was said from the line on that was waited for; without one, the last."""
    if match is None:
        return " ".join(said.split())[-_QUOTED:]
    begin = said.rfind("\n", 0, match.start()) + 1
    return " ".join(said[begin:].split())[:_QUOTED]


def _read_counts(lines: list[str]) -> dict[str, Any]:
    """What the last line counts; nothing where the case did not come to it."""
    try:
        found: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        return {}
    return found


def _wait_told(bench: subprocess.Popen[bytes], told: Path) -> None:
    deadline = time.monotonic() + _STARTS_S
    while not told.exists() and bench.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)


def _send(number: signal.Signals) -> Interfere:
    def interfere(bench: subprocess.Popen[bytes], told: Path) -> None:
        _wait_told(bench, told)
        bench.send_signal(number)

    return interfere


def _interrupt_at_random(bench: subprocess.Popen[bytes], told: Path) -> None:
    """Anywhere from the import of the command line to the stall."""
    deadline = time.monotonic() + random.uniform(0.5, 20.0)
    while time.monotonic() < deadline and not told.exists() and bench.poll() is None:
        time.sleep(0.01)
    bench.send_signal(signal.SIGINT)


def _kill_server(bench: subprocess.Popen[bytes], told: Path) -> None:
    _wait_told(bench, told)
    for child in psutil.Process(bench.pid).children():
        if "distbench.launch.forkserver" in child.cmdline():
            child.kill()


_RIGHT = (*_CHECK, f"{_PROGRAM}:Program", "--tier", "bounded")
_PYTEST = (
    *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
    *("--basetemp", "{folder}/tmp", "{folder}/test_crash.py"),
)
_CROWD = Path(__file__).with_name("reliability_crowd.py")
_MANY = Path(__file__).with_name("reliability_many.py")
BENCHES = (
    BenchCase(
        name="the bench is killed (SIGKILL)",
        how="`kill -KILL` while a worker stalls",
        said="",
        codes=(-signal.SIGKILL,),
        interfere=_send(signal.SIGKILL),
    ),
    BenchCase(
        name="the bench is asked to end (SIGTERM)",
        how="`kill -TERM` while a worker stalls",
        said="",
        codes=(-signal.SIGTERM, 143),
        interfere=_send(signal.SIGTERM),
    ),
    BenchCase(
        name="Ctrl-C",
        how="SIGINT while a worker stalls",
        said="Aborted|nterrupt",
        codes=(-signal.SIGINT, 1, 130),
        interfere=_send(signal.SIGINT),
    ),
    BenchCase(
        name="Ctrl-C at any moment",
        how="SIGINT after 0.5 to 20 s, drawn anew each time",
        said="",
        codes=(-signal.SIGINT, 1, 130),
        interfere=_interrupt_at_random,
    ),
    BenchCase(
        name="the fork server is killed",
        how="`kill -KILL` while a worker stalls",
        said="fork server died",
        codes=(3,),
        interfere=_kill_server,
    ),
    BenchCase(
        name="pytest crashes",
        how="a task kills the process of its test",
        said="",
        codes=(-signal.SIGKILL,),
        command=_PYTEST,
    ),
    BenchCase(
        name="a worker of pytest-xdist crashes",
        how="a task kills the process of its test; another test follows",
        said="1 failed, 1 passed",
        codes=(1,),
        command=(*_PYTEST, "-n", "1"),
    ),
    BenchCase(
        name="no IPv6",
        how="a network of its own with `disable_ipv6=1`",
        said="",
        codes=(0,),
        command=_RIGHT,
        around="ip link set lo up; sysctl -qw net.ipv6.conf.all.disable_ipv6=1",
    ),
    BenchCase(
        name="a hostname that does not resolve",
        how="`hostname no-such-host`",
        said="",
        codes=(0,),
        command=_RIGHT,
        around="ip link set lo up; hostname no-such-host",
    ),
    BenchCase(
        name="a checkout that cannot be written",
        how="mounted read-only",
        said="",
        codes=(0,),
        command=_RIGHT,
        around="ip link set lo up; mount --bind {root} {root}; "
        "mount -o remount,bind,ro {root}",
    ),
    BenchCase(
        name="a TMPDIR that is full",
        how="a disk of 64 kB",
        said=r"disk\s+is\s+full.*TMPDIR",
        codes=(3,),
        command=_RIGHT,
        around='ip link set lo up; mount -t tmpfs -o size=64k tmpfs "$TMPDIR"',
    ),
    BenchCase(
        name="four suites at once and a thief of ports",
        how=f"{SUITES} × {LAUNCHES} clusters `mwms:2`, and a process that takes ports",
        said=r'"failed to start": 0',
        codes=(0,),
        command=(sys.executable, str(_CROWD)),
        counts=True,
        ends_s=600.0,
        enough=1000,
    ),
    BenchCase(
        name="a thousand scenarios in one process",
        how=f"{SCENARIOS} checks of {len(KINDS)} kinds, in an order that is drawn",
        said=r'"kinds with more than one verdict": 0',
        codes=(0,),
        command=(sys.executable, str(_MANY)),
        counts=True,
        ends_s=36000.0,
        enough=SCENARIOS,
    ),
)
