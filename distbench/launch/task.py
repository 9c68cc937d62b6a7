"""What a task's own code is written with: its context and its job loop.

An entry is a function `entry(channel, context)`, usually

    def run_worker(channel: TaskChannel, context: TaskContext) -> None:
        worker = Worker(context)
        serve(channel, {"train": worker.train, "restore": worker.restore})
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distbench.cluster import Task
from distbench.errors import (
    DISK_FULL,
    find_advice,
    read_message,
    shorten,
    shorten_lines,
)
from distbench.launch.channel import Message, TaskChannel, encode_message

_MESSAGE_LENGTH = 1 << 12
_TRACE_LENGTH = 1 << 16
_TRACE_LINES = 300
"""Somebody has to read it, and nobody reads what fills a terminal for minutes."""

Handler = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
Classify = Callable[[BaseException], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """What a task is told when it starts.

    Attributes:
        task: Which task of the cluster this process is.
        spec: The resolved cluster spec, as text.
        folder: The run's directory; results go there.
        notes: Where it takes down what it does; see `distbench.launch.notes`.
        addresses: `host:port` of every task by role; empty for one process alone.
    """

    task: Task
    spec: str
    folder: Path
    notes: Path
    addresses: Mapping[str, tuple[str, ...]]


def classify_as_bench(error: BaseException) -> Mapping[str, Any]:  # noqa: ARG001 - a Classify
    """Blame the bench: right wherever no code of the user's runs."""
    return {"kind": "bench"}


def serve(
    channel: TaskChannel,
    handlers: Mapping[str, Handler],
    *,
    classify: Classify = classify_as_bench,
) -> None:
    """Run the bench's jobs one after the other until it says that it is done.

    A handler gets the job's payload and returns a JSON object (None is an empty one).
    It writes its files before it returns, since "finished" tells the bench to read
    them. A task goes on serving after a failure: collectives of its peers may need it,
    and the bench decides when it ends.

    Args:
        channel: The connection to the bench.
        handlers: What to run, by name of the job.
        classify: Says whose failure an exception is: a mapping with `kind` and, where
            known, `step`, `phase` and `replica`.
    """
    while "exit" not in (message := channel.receive()):
        name = message["job"]
        try:
            if name not in handlers:
                raise LookupError(
                    f"This task has no job {name!r}. Expected one of "
                    f"{sorted(handlers)}."
                )
            result = dict(handlers[name](message["payload"]) or {})
            finished: Message = {"event": "finished", "result": result}
            encode_message(finished)
        except BaseException as error:  # noqa: BLE001 - it crosses to the bench
            channel.send(describe_failure(error, channel, classify))
        else:
            channel.send(finished)


def describe_failure(
    error: BaseException, channel: TaskChannel, classify: Classify
) -> Message:
    """The message that carries an exception to the bench."""
    try:
        return _describe(error, channel, classify)
    except Exception as failure:  # noqa: BLE001 - its own attributes may raise
        words = f"{type(error).__qualname__}, and to look at it raises"
        return _describe(RuntimeError(f"{words} {failure!r}"), channel, classify)


def _describe(
    error: BaseException, channel: TaskChannel, classify: Classify
) -> Message:
    # Where the bench met a full disk is nothing to look into.
    is_full = isinstance(error, OSError) and error.errno in DISK_FULL
    lines = [] if is_full else traceback.format_exception(error)
    told = {
        "event": "failed",
        "exception": type(error).__qualname__,
        "message": read_message(error),
        "traceback": "".join(lines),
        "step": channel.step,
        "phase": channel.phase,
        "replica": None,
        **classify(error),
    }
    told["traceback"] = shorten_lines(told["traceback"], _TRACE_LINES)
    for name, length in (("message", _MESSAGE_LENGTH), ("traceback", _TRACE_LENGTH)):
        told[name] = shorten(told[name], length)
    if advice := find_advice(error):
        told["message"] = f"{told['message']}. {advice}"
    return told
