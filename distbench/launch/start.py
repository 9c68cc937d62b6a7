"""Starts a group: ports, environment, processes, and a second try with other ports."""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from distbench.cluster import ClusterSpec, Task
from distbench.errors import BadInputError, ClusterError
from distbench.launch.blame import Member
from distbench.launch.channel import BenchChannel, Message
from distbench.launch.events import OnProgress
from distbench.launch.failure import TaskFailedError
from distbench.launch.forkclient import (
    DEFAULT_CHECK,
    ForkServer,
    ServerDiedError,
    UnfitError,
    get_fork_server,
)
from distbench.launch.group import Group
from distbench.launch.ports import lease_ports
from distbench.launch.process import TaskProcess, kill_processes
from distbench.launch.rundir import RunDirectory
from distbench.launch.spawn import spawn_task
from distbench.launch.surroundings import Start, choose_start, make_task_environment
from distbench.launch.tf_config import assign_addresses, count_ports, make_tf_config
from distbench.launch.watch import Watch

_START_S = 30.0
_REPLACED = "The fork server had died; another one is started."


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that belongs to the start: it is where servers bind their ports.

    Attributes:
        name: Name of the job.
        payload: Its payload, for every task or by task.
        timeout_s: Its deadline.
        on_progress: See `Group.call`.
    """

    name: str
    payload: Mapping[str, Any] | Mapping[Task, Mapping[str, Any]] = field(
        default_factory=dict
    )
    timeout_s: float = 60.0
    on_progress: OnProgress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    spec: ClusterSpec
    run_directory: RunDirectory
    entry: str
    preload: tuple[str, ...]
    environment: Mapping[str, str]
    environment_by_task: Mapping[Task, Mapping[str, str]]
    context: Mapping[str, Any]
    memory_bytes: int | None
    first: Job | None
    clock: Callable[[], float]


def start_group(
    spec: ClusterSpec,
    *,
    run_directory: RunDirectory,
    entry: str,
    preload: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    environment_by_task: Mapping[Task, Mapping[str, str]] | None = None,
    context: Mapping[str, Any] | None = None,
    start: Start | None = None,
    first: Job | None = None,
    memory_bytes: int | None = None,
    attempts: int = 3,
    check: str = DEFAULT_CHECK,
    clock: Callable[[], float] = time.monotonic,
    log: Callable[[str], None] = lambda _: None,
) -> Group:
    """Start one fresh process for every task of a cluster, all at the same time.

    Args:
        spec: The resolved cluster spec.
        run_directory: Where logs, stacks and results go.
        entry: `module:function`, called in each task with a `TaskChannel` and a
            `TaskContext`; see `distbench.launch.task`.
        preload: Modules that are imported before tasks are forked.
        environment: Variables to set, seen by the imports as well.
        environment_by_task: Variables of single tasks, set after the imports.
        context: JSON object for the tasks' contexts.
        start: `fork` or `spawn`; by default a fork where it is safe.
        first: Job to run at once. If it (or the entry) fails with kind `port`, the
            whole cluster is started anew with other ports.
        memory_bytes: How much memory each task may take; None lets them take together
            what the machine can spare.
        attempts: How many clusters to start at most.
        check: `module:function` that says why the fork server must not fork.
        clock: Monotonic time in seconds.
        log: Told what the user should know.

    Raises:
        BadInputError: This system cannot start tasks so.
        ClusterError: The machine cannot hold the cluster.
        TaskFailedError: A task failed in the first job.
    """
    if not spec.tasks:
        raise BadInputError(
            f"Cluster spec '{spec}' does not say how many tasks to start. Call "
            "`resolve` on it first."
        )
    plan = _Plan(
        spec=spec,
        run_directory=run_directory,
        entry=entry,
        preload=preload,
        environment=environment or {},
        environment_by_task=environment_by_task or {},
        context=context or {},
        memory_bytes=memory_bytes,
        first=first,
        clock=clock,
    )
    server = _find_server(plan, start, check, log)
    for attempt in range(1, attempts + 1):
        try:
            group = _start_once(plan, server)
        except ServerDiedError:
            # It was killed after the last group; the new one has not been used.
            log(_REPLACED)
            server = _find_server(plan, start, check, log)
            group = _start_once(plan, server)
        group.attempts = attempt
        if first is None:
            return group
        try:
            group.first = group.call(
                first.name,
                first.payload,
                timeout_s=first.timeout_s,
                on_progress=first.on_progress,
            )
        except TaskFailedError as error:
            if error.kind != "port" or attempt == attempts:
                raise
            log(f"{error} Starting '{spec}' anew with other ports ({attempt}).")
        else:
            return group
    raise AssertionError("unreachable: the last attempt returns or raises")


def _find_server(
    plan: _Plan, start: Start | None, check: str, log: Callable[[str], None]
) -> ForkServer | None:
    """The fork server to use, or None where tasks are spawned."""
    if choose_start(start) == "spawn":
        return None
    server = get_fork_server(plan.preload, plan.environment, check=check)
    try:
        try:
            server.wait_ready()
        except ServerDiedError:
            # It was killed while it was importing; one that dies again is an error.
            log(_REPLACED)
            server = get_fork_server(plan.preload, plan.environment, check=check)
            server.wait_ready()
    except UnfitError as error:
        if start == "fork":
            raise ClusterError(
                f"The fork server must not fork: {error}. Use start='spawn'."
            ) from error
        log(f"Tasks are spawned, which is slower: the fork server says that {error}.")
        return None
    return server


def _start_once(plan: _Plan, server: ForkServer | None) -> Group:
    lease = lease_ports(count_ports(plan.spec))
    addresses = assign_addresses(plan.spec, lease.ports)
    files = plan.run_directory.add_group()
    members: list[Member] = []
    with ExitStack() as undo:
        undo.callback(lease.close)
        messages: list[Message] = []
        for task in plan.spec.tasks:
            message = _make_start_message(plan, task, addresses, files.scratch)
            message["stacks"] = str(files.name_stacks(task))
            channel, process = _start_process(server, files.name_log(task), message)
            undo.callback(channel.close)
            undo.callback(kill_processes, (process,))
            messages.append(message)
            members.append(
                Member(
                    task=task,
                    channel=channel,
                    process=process,
                    log=files.name_log(task),
                    stacks=files.name_stacks(task),
                    restart=partial(
                        _restart_task, plan, server, files.name_log(task), message, task
                    ),
                )
            )
        # A worker that does not find its peers waits for a second before it looks
        # again, so no task starts until all are there.
        for member, message in zip(members, messages, strict=True):
            member.channel.send(message, timeout_s=_START_S)
        undo.pop_all()
    return Group(
        str(plan.spec),
        members,
        server=server,
        release=lease.close,
        clock=plan.clock,
        watch=Watch(each_bytes=plan.memory_bytes, clock=plan.clock),
    )


def _start_process(
    server: ForkServer | None, log: Path, message: Message
) -> tuple[BenchChannel, TaskProcess]:
    """A process that waits for its start message."""
    ours, theirs = socket.socketpair()
    try:
        with theirs, log.open("ab") as log_file:
            process: TaskProcess
            if server is not None:
                process = server.fork(theirs.fileno(), log_file.fileno())
            else:
                process = spawn_task(
                    theirs.fileno(), log_file.fileno(), message["environment"]
                )
    except BaseException:
        ours.close()
        raise
    return BenchChannel(ours), process


def _restart_task(
    plan: _Plan, server: ForkServer | None, log: Path, message: Message, task: Task
) -> tuple[BenchChannel, TaskProcess]:
    """A task in the place of one that died, at its address, with the first job."""
    channel, process = _start_process(server, log, message)
    channel.send(message, timeout_s=_START_S)
    if plan.first is not None:
        payload = plan.first.payload
        own = payload.get(task, payload)  # type: ignore[call-overload]
        job = {"job": plan.first.name, "payload": own}
        channel.send(job, timeout_s=_START_S)
    return channel, process


def _make_start_message(
    plan: _Plan, task: Task, addresses: Mapping[str, tuple[str, ...]], scratch: Path
) -> Message:
    return {
        "entry": plan.entry,
        "preload": plan.preload,
        "environment": make_task_environment(
            os.environ,
            plan.environment,
            plan.environment_by_task.get(task, {}),
            # A task ends without exit handlers, which is where libraries remove their
            # temporary files: AutoGraph's, for one.
            {"TMPDIR": str(scratch)},
            tf_config=make_tf_config(task, addresses),
        ),
        "cwd": str(Path.cwd()),
        "sys_path": sys.path,
        "task": dataclasses.asdict(task),
        "spec": str(plan.spec),
        "folder": str(plan.run_directory.path),
        "addresses": addresses,
        "context": dict(plan.context),
    }
