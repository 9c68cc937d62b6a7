"""Waits for what other processes and threads do, as long as a busy machine takes."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil


def comes_true(condition: Callable[[], object], within_s: float = 30.0) -> bool:
    """Whether something comes true within the deadline."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_gone_soon(pid: int, within_s: float = 30.0) -> bool:
    """Whether a process ends within the deadline."""
    return comes_true(lambda: has_ended(pid), within_s)


def has_ended(pid: int) -> bool:
    """Whether a process has ended.

    A zombie has: whoever adopted it has only not looked yet.
    """
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
