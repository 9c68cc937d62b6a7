"""Groups whose tasks are hurt on purpose, by scripted histories of what they do."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from launch_support import FIRST, SECOND, TIMEOUT_S
from scripted_group import COMPLAINT, Maker, ScriptedProcess, tick

from distbench.launch.channel import Message
from distbench.launch.failure import TaskFailedError
from distbench.launch.injury import Injury
from distbench.launch.process import ExitStatus

STEP = {"event": "progress", "step": 1, "phase": "loss", "waits": False}


class Enduring(ScriptedProcess):
    """Takes its time to die of SIGKILL."""

    def send_signal(self, number: signal.Signals) -> None:
        self.signals.append(number)


def test_a_task_that_dies_as_its_group_ends_is_not_started_again(
    make_scripted: Maker,
) -> None:
    started: list[str] = []
    process = Enduring(None)
    group = make_scripted(process)
    (member,) = group._members.values()

    def restart() -> None:
        started.append("again")
        raise AssertionError

    member.restart = restart  # type: ignore[assignment]  # it makes nothing
    group.injure(Injury(number=signal.SIGKILL, step=1, task=FIRST, restarts=True))
    process.say(**STEP)
    process.say(event="finished", result={"steps": 1})
    assert group.call("train", {}, deadline=TIMEOUT_S) == {FIRST: {"steps": 1}}
    assert process.signals == [signal.SIGKILL]
    group.close(polite=False)
    assert process.poll() is not None
    assert started == []


@pytest.mark.parametrize("is_hurt", [True, False])
def test_what_a_task_raises_that_was_woken_at_the_deadline_is_not_the_cause(
    make_scripted: Maker, is_hurt: bool
) -> None:
    """It has stood still until then, on purpose."""

    class Woken(ScriptedProcess):
        def send_signal(self, number: signal.Signals) -> None:
            super().send_signal(number)
            if number == signal.SIGUSR1:  # its stacks are asked for
                self.say(**{**COMPLAINT, "exception": "KeyError", "kind": "subject"})

    process = Woken(None)
    group = make_scripted(process, clock=tick(0.1))
    if is_hurt:
        stop = Injury(number=signal.SIGSTOP, step=1, task=FIRST, until_step=9)
        group.injure(stop)
    process.say(**STEP)
    with pytest.raises(TaskFailedError) as caught:
        group.call("train", {}, deadline=5.0)
    assert caught.value.kind == ("timeout" if is_hurt else "subject")
    assert bool(caught.value.injury) is is_hurt


def script_polls(make: Callable[[int], Message | None]) -> type[ScriptedProcess]:
    """A process that says something when it is looked at for the n-th time."""

    class Scripted(ScriptedProcess):
        looks = 0

        def poll(self) -> ExitStatus | None:
            self.looks += 1
            if (message := make(self.looks)) is not None:
                self.say(**message)
            return super().poll()

    return Scripted


@pytest.mark.parametrize(("after_s", "is_blamed"), [(0.7, True), (2.0, False)])
def test_whoever_only_lost_a_peer_waits_for_the_cause(
    make_scripted: Maker, after_s: float, is_blamed: bool
) -> None:
    """A cause may take longer to say what it raised than its peers to miss it."""
    now_s = [0.0]

    def fail_late(looks: int) -> Message | None:
        now_s[0] = 0.1 * looks
        is_late = looks == round(10 * after_s)
        own = {**COMPLAINT, "exception": "KeyError", "kind": "subject"}
        return own if is_late else None

    bystander, cause = ScriptedProcess(None), script_polls(fail_late)(None)
    bystander.say(**{**COMPLAINT, "kind": "peer"})
    group = make_scripted(bystander, cause, clock=lambda: now_s[0])
    with pytest.raises(TaskFailedError) as caught:
        group.call("train", {}, deadline=TIMEOUT_S)
    assert caught.value.task == (SECOND if is_blamed else FIRST)


def test_a_peer_that_died_on_purpose_is_not_said_to_live(make_scripted: Maker) -> None:
    """Others may go on without it; one that cannot fails by itself."""
    complains, dies = ScriptedProcess(None), ScriptedProcess(None)
    group = make_scripted(complains, dies, clock=tick(0.05))
    group.injure(Injury(number=signal.SIGKILL, step=1, task=SECOND, goes_on=True))
    dies.say(**STEP)
    assert group.is_whole
    assert group.lost == (SECOND,)
    complains.say(**{**COMPLAINT, "kind": "peer", "peer": "worker-1"})
    with pytest.raises(TaskFailedError, match=r"worker-0 .* UnavailableError") as error:
        group.call("train", {}, deadline=TIMEOUT_S, tasks=[FIRST])
    assert error.value.task == FIRST
