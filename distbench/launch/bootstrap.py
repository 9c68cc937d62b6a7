"""From a bare process to a running task: the same for forked and spawned ones.

The first line on the channel is the start message. Everything that a task has to know
comes with it, so the fork server knows nothing of tasks.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from distbench.cluster import Task
from distbench.launch.channel import Message, TaskChannel
from distbench.launch.task import TaskContext, classify_as_bench, describe_failure

EXIT_TASK_FAILED = 70
"""Exit code of a task whose entry raised; the exception has been reported."""

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Ask Linux for a signal when the parent dies; elsewhere the channel's EOF serves.

    Args:
        parent: The parent's pid, taken before the fork: it may have died since, and
            then no signal would come any more.
        number: The signal.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(EXIT_TASK_FAILED)


def wake_when_parent_dies() -> None:
    """Ask Linux to have this process go on when its parent dies, if it is stopped.

    For one that learns of the death by EOF and then tidies up: a stopped one reads
    none. SIGCONT does nothing to one that runs, so it does no harm that Linux sends it
    as soon as the thread ends that started this process.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)


def resolve_entry(entry: str) -> Callable[..., Any]:
    """Import `package.module:function`."""
    module, _, name = entry.partition(":")
    function = getattr(importlib.import_module(module), name)
    assert callable(function)
    return function  # type: ignore[no-any-return]  # callable, and called untyped


def import_all(modules: Iterable[str]) -> None:
    """Import modules, without looking for garbage meanwhile, and keep all of it.

    TensorFlow's import makes very many objects and drops few of them, and the collector
    would look through them again and again. What is kept is not visited any more, so
    forks share its pages. What that saves, scripts/benchmark measures.
    """
    gc.disable()
    try:
        for module in modules:
            importlib.import_module(module)
        gc.freeze()
    finally:
        gc.enable()


def run_task(channel_fd: int) -> NoReturn:
    """Wait for the start message, run the entry, and end the process.

    The process ends by `os._exit`: the runtime's teardown of a fork would run exit
    handlers of the fork server, and TensorFlow's threads may hang in theirs.
    """
    channel = TaskChannel(socket.socket(fileno=channel_fd))
    code = 0
    try:
        start = channel.receive()
        _apply_surroundings(start)
        import_all(start["preload"])
        resolve_entry(start["entry"])(channel, _make_context(start))
    except BaseException as error:  # noqa: BLE001 - it crosses to the bench
        code = EXIT_TASK_FAILED
        channel.send(describe_failure(error, channel, classify_as_bench))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _apply_surroundings(start: Message) -> None:
    """Make this process see what the bench sees: environment, folder, import path."""
    os.environ.clear()
    os.environ.update(start["environment"])
    # The folder that goes with the run, whatever the subject makes of its environment
    # and however full the disk is: AutoGraph writes files in all that it traces.
    tempfile.tempdir = start["scratch"]
    os.chdir(start["cwd"])
    sys.path[:] = start["sys_path"]
    # Lines reach the log even if the task is killed the moment after.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # Where memory runs out all the same, Linux ends a task and nothing of the user's.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    faulthandler.enable()
    # Never closed: the signal handler writes to it until the process ends.
    stacks = Path(start["stacks"]).open("w")  # noqa: SIM115
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)


def _make_context(start: Message) -> TaskContext:
    return TaskContext(
        task=Task(**start["task"]),
        spec=start["spec"],
        folder=Path(start["folder"]),
        notes=Path(start["notes"]),
        addresses={role: tuple(found) for role, found in start["addresses"].items()},
    )
