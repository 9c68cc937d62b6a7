"""Starts a group: its places, its processes, and a second try with other ports."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from distbench.cluster import ClusterSpec, Task
from distbench.errors import BadInputError
from distbench.launch.channel import BenchChannel, Message
from distbench.launch.deadline import Deadline
from distbench.launch.engine import Engine, Places, Request
from distbench.launch.events import OnProgress
from distbench.launch.failure import TaskFailedError
from distbench.launch.forkclient import ServerDiedError
from distbench.launch.group import Group
from distbench.launch.halt import Halt
from distbench.launch.injury import Injury
from distbench.launch.local import REPLACED, LocalEngine
from distbench.launch.member import Member
from distbench.launch.process import TaskProcess, kill_processes
from distbench.launch.rundir import GroupFiles, RunDirectory
from distbench.launch.surroundings import Start, make_task_environment
from distbench.launch.tf_config import list_hosts, make_tf_config
from distbench.machine import find_current_folder

_START_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that belongs to the start: it is where servers bind their ports.

    Attributes:
        name: Name of the job.
        payload: Its payload.
        deadline: See `Group.call`.
        on_progress: See `Group.call`.
        injuries: What is done to tasks meanwhile.
    """

    name: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    deadline: float | Deadline = 60.0
    on_progress: OnProgress | None = None
    injuries: tuple[Injury, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    request: Request
    engine: Engine
    run_directory: RunDirectory
    entry: str
    first: Job | None


def start_group(
    spec: ClusterSpec,
    *,
    run_directory: RunDirectory,
    entry: str,
    preload: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    start: Start | None = None,
    first: Job | None = None,
    memory_bytes: int | None = None,
    sharers: int = 1,
    attempts: int = 3,
    engine: Engine | None = None,
    clock: Callable[[], float] = time.monotonic,
    log: Callable[[str], None] = lambda _: None,
    halt: Halt | None = None,
) -> Group:
    """Start one fresh process for every task of a cluster, all at the same time.

    Args:
        spec: The resolved cluster spec.
        run_directory: Where logs, stacks and results go.
        entry: `module:function`, called in each task with a `TaskChannel` and a
            `TaskContext`; see `distbench.launch.task`.
        preload: Modules that are imported before tasks are forked.
        environment: Variables to set, seen by the imports as well.
        start: `fork` or `spawn`; by default a fork where it is safe.
        first: Job to run at once. If it (or the entry) fails with kind `port`, the
            whole cluster is started anew with other ports.
        memory_bytes: How much memory each task may take; None lets them take together
            what the machine can spare.
        sharers: How many groups there are at one time at most, which share that.
        attempts: How many clusters to start at most.
        engine: Who finds places for the tasks; None takes this machine.
        clock: Monotonic time in seconds.
        log: Told what the user should know.
        halt: Ends whoever waits for the group.

    Raises:
        BadInputError: This system cannot start tasks so.
        ClusterError: The machine cannot hold the cluster.
        TaskFailedError: A task failed in the first job.
        HaltedError: The group is not wanted any more.
    """
    if not spec.tasks:
        raise BadInputError(
            f"Cluster spec '{spec}' does not say how many tasks to start. Call "
            "`resolve` on it first."
        )
    request = Request(
        spec=spec,
        folder=run_directory.path,
        preload=preload,
        environment=environment or {},
        start=start,
        memory_bytes=memory_bytes,
        sharers=sharers,
        clock=clock,
        log=log,
        halt=halt or Halt(),
    )
    plan = _Plan(
        request=request,
        engine=engine or LocalEngine(),
        run_directory=run_directory,
        entry=entry,
        first=first,
    )
    for attempt in range(1, attempts + 1):
        try:
            group = _start_once(plan)
        except ServerDiedError:
            # It was killed after the last group; the new one has not been used.
            log(REPLACED)
            group = _start_once(plan)
        group.attempts = attempt
        if first is None:
            return group
        try:
            give_first(group, first)
        except TaskFailedError as error:
            if error.kind != "port" or attempt == attempts:
                raise
            log(f"{error} Starting '{spec}' anew with other ports ({attempt}).")
        else:
            return group
    raise AssertionError("unreachable: the last attempt returns or raises")


def give_first(group: Group, job: Job) -> None:
    """Have all tasks of a group do what they were started for.

    Raises:
        TaskFailedError: A task failed in it.
    """
    group.injure(*job.injuries)
    group.first = group.call(
        job.name,
        job.payload,
        deadline=job.deadline,
        on_progress=job.on_progress,
    )


def _start_once(plan: _Plan) -> Group:
    request = plan.request
    request.halt.check()
    places = plan.engine.find_places(request)
    members: list[Member] = []
    with ExitStack() as undo:
        undo.callback(places.close)
        files = plan.run_directory.add_group()
        messages: list[Message] = []
        for task in request.spec.tasks:
            message = _make_start_message(plan, task, places, files)
            channel, process = places.start(task, files, message)
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
                    notes=files.name_notes(task),
                    restart=partial(_restart_task, plan, places, files, message, task),
                    has_first_job=plan.first is not None,
                )
            )
        # A worker that does not find its peers waits for a second before it looks
        # again, so no task starts until all are there.
        for member, message in zip(members, messages, strict=True):
            member.channel.send(message, timeout_s=_START_S)
        watch = places.make_watch()
        undo.pop_all()
    return Group(
        str(request.spec),
        members,
        server=places.server,
        started_by=places.started_by,
        release=places.close,
        clock=request.clock,
        watch=watch,
        halt=request.halt,
    )


def _restart_task(
    plan: _Plan, places: Places, files: GroupFiles, message: Message, task: Task
) -> tuple[BenchChannel, TaskProcess]:
    """A task in the place of one that died, at its address, with the first job."""
    channel, process = places.start(task, files, message)
    channel.send(message, timeout_s=_START_S)
    if plan.first is not None:
        job = {"job": plan.first.name, "payload": plan.first.payload}
        channel.send(job, timeout_s=_START_S)
    return channel, process


def _make_start_message(
    plan: _Plan, task: Task, places: Places, files: GroupFiles
) -> Message:
    return {
        "entry": plan.entry,
        "preload": plan.request.preload,
        "environment": make_task_environment(
            places.find_environment(task),
            plan.request.environment,
            # A task ends without exit handlers, which is where libraries remove their
            # temporary files: AutoGraph's, for one.
            {"TMPDIR": str(files.scratch)},
            tf_config=make_tf_config(task, places.addresses),
            hosts=list_hosts(places.addresses),
        ),
        "scratch": str(files.scratch),
        "cwd": str(find_current_folder()),
        "sys_path": sys.path,
        "task": dataclasses.asdict(task),
        "spec": str(plan.request.spec),
        "folder": str(plan.run_directory.path),
        "stacks": str(files.name_stacks(task)),
        "notes": str(files.name_notes(task)),
        "addresses": places.addresses,
    }
