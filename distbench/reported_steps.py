"""What a function that `distbench.run` runs tells while it runs."""

from __future__ import annotations

from collections.abc import Callable

_LISTENERS: list[Callable[[int], None]] = []


def report_step(step: int) -> None:
    """Tell, in a function that `distbench.run` runs, that a step begins.

    A fault of this step happens before this returns, and a failure is told with the
    last step. Nothing happens in a process that no bench has started, so a program may
    keep the call.

    Args:
        step: The step's number, from 0.
    """
    for listener in _LISTENERS:
        listener(int(step))


def listen(listener: Callable[[int], None]) -> None:
    """Have a function told of every step of this process from now on."""
    _LISTENERS[:] = [listener]
