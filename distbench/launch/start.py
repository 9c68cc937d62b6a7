"""Starts a group: its places, its processes, and a second try with other ports."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from distbench.cluster import Task
from distbench.errors import BadInputError
from distbench.launch.channel import BenchChannel, Message
from distbench.launch.deadline import Deadline
from distbench.launch.engine import Engine, Places, Request
from distbench.launch.events import OnProgress
from distbench.launch.failure import TaskFailedError
from distbench.launch.forkclient import ServerDiedError
from distbench.launch.group import Group
from distbench.launch.injury import Injury
from distbench.launch.local import REPLACED
from distbench.launch.member import Member
from distbench.launch.process import TaskProcess, kill_processes
from distbench.launch.rundir import GroupFiles
from distbench.launch.surroundings import make_task_environment
from distbench.launch.tf_config import list_hosts, make_tf_config
from distbench.machine import find_current_folder

_START_S = 30.0
_ATTEMPTS = 3
"""How many clusters are started at most until one gets its ports."""


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


def start_group(request: Request, engine: Engine, first: Job | None = None) -> Group:
    """Start one fresh process for every task of a cluster, all at the same time.

    Args:
        request: What is wanted.
        engine: Who finds places for the tasks.
        first: Job to run at once. If it (or the entry) fails with kind `port`, the
            whole cluster is started anew with other ports.

    Raises:
        BadInputError: This system cannot start tasks so.
        ClusterError: The machine cannot hold the cluster.
        TaskFailedError: A task failed in the first job.
        HaltedError: The group is not wanted any more.
    """
    spec = request.spec
    if not spec.tasks:
        raise BadInputError(
            f"Cluster spec '{spec}' does not say how many tasks to start. Call "
            "`resolve` on it first."
        )
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            group = _start_once(request, engine, first)
        except ServerDiedError:
            # It was killed after the last group; the new one has not been used.
            request.log(REPLACED)
            group = _start_once(request, engine, first)
        group.attempts = attempt
        if first is None:
            return group
        try:
            give_first(group, first)
        except TaskFailedError as error:
            if error.kind != "port" or attempt == _ATTEMPTS:
                raise
            request.log(f"{error} Starting '{spec}' anew with other ports ({attempt}).")
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


def _start_once(request: Request, engine: Engine, first: Job | None) -> Group:
    request.halt.check()
    places = engine.find_places(request)
    members: list[Member] = []
    with ExitStack() as undo:
        undo.callback(places.close)
        files = request.directory.add_group()
        messages: list[Message] = []
        for task in request.spec.tasks:
            message = _make_start_message(request, task, places, files)
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
                    restart=partial(_restart_task, places, files, message, task, first),
                    has_first_job=first is not None,
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
        release=places.close,
        watch=watch,
        halt=request.halt,
    )


def _restart_task(
    places: Places, files: GroupFiles, message: Message, task: Task, first: Job | None
) -> tuple[BenchChannel, TaskProcess]:
    """A task in the place of one that died, at its address, with the first job."""
    channel, process = places.start(task, files, message)
    channel.send(message, timeout_s=_START_S)
    if first is not None:
        job = {"job": first.name, "payload": first.payload}
        channel.send(job, timeout_s=_START_S)
    return channel, process


def _make_start_message(
    request: Request, task: Task, places: Places, files: GroupFiles
) -> Message:
    return {
        "entry": request.entry,
        "preload": request.preload,
        "environment": make_task_environment(
            places.find_environment(task),
            request.environment,
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
        "spec": str(request.spec),
        "folder": str(request.directory.path),
        "stacks": str(files.name_stacks(task)),
        "notes": str(files.name_notes(task)),
        "addresses": places.addresses,
    }
