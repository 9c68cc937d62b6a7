"""Who is to blame where a job does not end well, and the error that says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from distbench.cluster import Task
from distbench.launch.channel import EXIT_CHANNEL_CLOSED
from distbench.launch.crash import find_crash
from distbench.launch.events import Events
from distbench.launch.failure import StackRequest, TaskFailedError, read_tail
from distbench.launch.member import Member, Trouble
from distbench.launch.notes import LINES, read_notes
from distbench.launch.process import ExitStatus

_GRACE_S = 0.3
"""How long a task's death may come in after its peers' errors and still be the cause.

A worker whose peer dies gets a gRPC error within milliseconds; the peer's exit status
takes the way through the fork server.
"""
_PEER_GRACE_S = 1.0
"""How long, where all that is known is that a task lost a peer."""
_STACKS_S = 1.0
_INJECTED = "injected"
_GATHER = "all_gather"
_LOGGED = {True: "Its log shows what it did last.", False: "It had printed nothing."}


def find_culprit(
    members: Iterable[Member], events: Events, clock: Callable[[], float]
) -> Member:
    """Who is to blame: one that died before those that complain.

    And those that complain of something of their own before those that say that a
    peer is gone. Of those that raise alike it is the first in the spec's order: who
    was quicker is chance.

    Args:
        members: The whole group, in the spec's order.
        events: What happens to it, of which some may be about to come in.
        clock: Monotonic time in seconds.
    """
    members = tuple(members)
    begin = clock()
    while not (died := [m for m in events.broken if m.failure is None]):
        own = [m for m in events.broken if not m.lost_peer]
        until = begin + (_GRACE_S if own else _PEER_GRACE_S)
        left = until - clock()
        if left <= 0 or len(events.broken) == len(members):
            if own:
                return next(m for m in members if m in own and m.raises_like(own[0]))
            return _find_unreachable(members, events.broken)
        events.pump(left)
    return min(died, key=lambda m: m.exit.order if m.exit else 0)


def _find_unreachable(
    members: Iterable[Member], complaining: Sequence[Member]
) -> Member:
    """Where all complain of lost peers: the one that they name, if it lives."""
    names = [member.peer for member in complaining]
    for member in members:
        is_alive = member.failure is None and member.exit is None
        if is_alive and str(member.task) in names:
            member.trouble = _make_unreachable(complaining)
            return member
    return complaining[0]


def _make_unreachable(complaining: Iterable[Member]) -> Trouble:
    """The trouble of a task that lives, and cannot be reached by its peers."""
    names = ", ".join(str(member.task) for member in complaining)
    return Trouble(
        kind="peer",
        words=f"could not be reached any more by {names}",
        advice=", though its process lives. Its log and Python stack show why.",
    )


def make_failure(
    name: str,
    job: str,
    culprit: Member,
    members: Iterable[Member],
    waiting: tuple[Task, ...],
    stacks: Mapping[Task, str],
    cause: str = "",
) -> TaskFailedError:
    """The error for a task that raised, is in trouble, or whose process ended.

    Args:
        name: The cluster, for the message.
        job: The job, for the message.
        culprit: Who is to blame.
        members: The whole group.
        waiting: Who had not answered.
        stacks: Python stacks of those that lived.
        cause: What was done to the culprit on purpose; empty for nothing.
    """
    members = tuple(members)
    failure = culprit.failure or {}
    ended = culprit.exit or ExitStatus()
    culprit.step = failure.get("step", culprit.step)
    culprit.phase = failure.get("phase", culprit.phase)
    place = f", last at {culprit.last}" if culprit.last else ""
    if failure:
        what, why = f"raised {failure['exception']}", f": {failure['message']}"
    elif cause:
        what = culprit.trouble.words if culprit.trouble is not None else str(ended)
        why = f": the injected {cause}."
    elif culprit.trouble is not None:
        what, why = culprit.trouble.words, culprit.trouble.advice
    elif ended.code == EXIT_CHANNEL_CLOSED:
        what = "closed descriptors that are not its own"
        why = ", its connection to the bench among them, so what it said last is lost."
    else:
        what, why = str(ended), f". {_explain_end(culprit, ended)}"
    return TaskFailedError(
        f"Task {culprit.task} of '{name}' {what} in job {job!r}{place}{why}",
        task=culprit.task,
        cluster=name,
        kind=failure.get("kind") or (_INJECTED if cause else _name_kind(culprit)),
        exception=failure.get("exception", ""),
        message=failure.get("message", ""),
        traceback=failure.get("traceback", ""),
        frame=failure.get("frame", ""),
        exit_code=ended.code,
        signal=ended.signal,
        step=culprit.step,
        phase=culprit.phase,
        replica=failure.get("replica"),
        waiting=waiting,
        **_gather_detail(members, culprit, stacks),
    )


def _explain_end(culprit: Member, ended: ExitStatus) -> str:
    """Why a process may have ended, by its signal and by what it left."""
    crash = find_crash(culprit.log) if ended.signal is not None else ""
    notes = read_notes(culprit.notes, LINES)
    # TensorFlow gathers in threads of its own.
    gathers = not crash and any(_GATHER in note for note in notes)
    is_logged = bool(read_tail(culprit.log).strip())
    reason = ended.explain(has_gathered=gathers) or _LOGGED[is_logged]
    return f"It crashed at {crash}. {reason}" if crash else reason


def _name_kind(culprit: Member) -> str:
    return "died" if culprit.trouble is None else culprit.trouble.kind


def make_timeout(
    name: str,
    job: str,
    limit: str,
    members: Iterable[Member],
    waiting: tuple[Task, ...],
    stacks: Mapping[Task, str],
) -> TaskFailedError:
    """The error for a job whose deadline has passed.

    Who waits for others is not to blame as long as one of them is elsewhere.

    Args:
        name: The cluster, for the message.
        job: The job, for the message.
        limit: How long it was given, and what was left of that for the job.
        members: The whole group.
        waiting: Who had not answered.
        stacks: Python stacks of those that lived.
    """
    members = tuple(members)
    late = [member for member in members if member.task in waiting]
    awaited = [member for member in late if member.collective is None]
    first = (awaited or late)[0]
    places = (f"{m.task} ({m.last or 'no step reported'})" for m in awaited or late)
    held = [str(m.task) for m in late if m.collective is not None] if awaited else []
    bystanders = f" {', '.join(held)} only waited for the others." if held else ""
    return TaskFailedError(
        f"Job {job!r} of '{name}' passed its deadline of {limit}. No answer "
        f"from: {', '.join(places)}.{bystanders} The Python stacks show where they "
        "wait; if they were merely slow, give them more time: '--timeout' (timeout_s "
        "in Python) is for all jobs of a scenario together.",
        task=first.task,
        cluster=name,
        kind="timeout",
        step=first.step,
        phase=first.phase,
        waiting=waiting,
        **_gather_detail(members, first, stacks),
    )


def ask_for_stacks(members: Iterable[Member]) -> Callable[[], dict[Task, str]]:
    """Ask tasks that live and did not raise for their Python stacks.

    Returns:
        A function that waits for the stacks of those of whom that still holds.
    """
    asked = [m for m in members if m.exit is None and m.failure is None]
    request = StackRequest(
        {m.task: m.process for m in asked}, {m.task: m.stacks for m in asked}
    )

    def wait() -> dict[Task, str]:
        left = {m.task for m in asked if m.exit is None and m.failure is None}
        stacks = request.wait(_STACKS_S)
        return {task: text for task, text in stacks.items() if task in left}

    return wait


def _gather_detail(
    members: Iterable[Member], culprit: Member, stacks: Mapping[Task, str]
) -> dict[str, Any]:
    members = tuple(members)
    return {
        "others": {m.task: _describe_other(m) for m in members if m is not culprit},
        "collectives": {
            m.task: m.collective for m in members if m.collective is not None
        },
        "recent": {m.task: read_notes(m.notes) for m in members},
        # Where a task was that raised, since a peer was gone, its traceback tells.
        "stacks": {
            **{
                m.task: m.failure["traceback"]
                for m in members
                if m.failure is not None and m is not culprit
            },
            **stacks,
        },
        "log_tails": {m.task: read_tail(m.log) for m in members},
    }


def _describe_other(member: Member) -> str:
    """What became of a task that is not to blame."""
    place = f" at {member.place}" if member.place else ""
    if (held := member.collective) is not None:
        return f"waited{place} in {held['words']}"
    if member.failure is not None:
        raised = f"raised {member.failure['exception']}{place}"
        if member.lost_peer:
            return f"is a bystander: it {raised}, because a peer was gone"
        return f"{raised} as well"
    if member.exit is not None:
        return f"is a bystander: it {member.exit}{place}, but later"
    if member.result is not None:
        return "had answered"
    return f"was still at work{place}"
