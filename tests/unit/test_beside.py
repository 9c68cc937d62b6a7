"""Runs beside each other, as far as there is room; what fails is tried alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from launch_support import TIMEOUT_S

from distbench.checking.beside import run_beside
from distbench.errors import BadInputError, ClusterError
from distbench.launch.engine import Room
from distbench.launch.halt import HaltedError
from distbench.launch.local import LocalEngine
from distbench.launch.rundir import RunDirectory
from distbench.observe import Launch

TWO = Room(tasks=2, gpu_tasks=0)


class Roomy(LocalEngine):
    """This machine, with so much room."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def find_room(self) -> Room:
        return Room(tasks=self._tasks, gpu_tasks=0)


@pytest.fixture
def start() -> Iterator[Callable[..., Launch]]:
    with RunDirectory() as directory:

        def make(*, tasks: int = 4, **others: Any) -> Launch:
            return Launch(directory=directory, engine=Roomy(tasks), **others)

        yield make


def test_runs_that_fit_are_made_at_the_same_time_and_share_what_there_is(
    start: Callable[..., Launch],
) -> None:
    meet = threading.Barrier(2, timeout=TIMEOUT_S)

    def ask(launch: Launch) -> int:
        meet.wait()
        return launch.sharers

    assert run_beside({"a": ask, "b": ask}, TWO, start()) == {"a": 2, "b": 2}


@pytest.mark.parametrize(
    ("tasks", "sharers"), [(3, 1), (4, 2)], ids=["no-room", "several-scenarios"]
)
def test_else_one_comes_after_the_other(
    tasks: int, sharers: int, start: Callable[..., Launch]
) -> None:
    lock = threading.Lock()

    def ask(_: Launch) -> bool:
        if not lock.acquire(blocking=False):
            return False
        # Long enough for the other to begin, if it may.
        threading.Event().wait(0.05)
        lock.release()
        return True

    learnt = run_beside({"a": ask, "b": ask}, TWO, start(tasks=tasks, sharers=sharers))
    assert learnt == {"a": True, "b": True}


def test_one_run_has_all_for_itself(start: Callable[..., Launch]) -> None:
    assert run_beside({"a": lambda launch: launch.sharers}, TWO, start()) == {"a": 1}
    assert run_beside({}, TWO, start()) == {}


def test_what_failed_in_company_is_tried_alone(start: Callable[..., Launch]) -> None:
    def ask(launch: Launch) -> int:
        if launch.sharers > 1:
            raise ClusterError("no memory")
        return launch.sharers

    learnt = run_beside({"a": ask, "b": lambda _: 7}, TWO, start())
    assert learnt == {"a": 1, "b": 7}


def test_what_fails_alone_is_told_and_left_out(start: Callable[..., Launch]) -> None:
    told: list[str] = []
    launch = start(log=told.append)

    def ask(_: Launch) -> int:
        raise ClusterError("no memory")

    assert run_beside({"The run": ask, "b": lambda _: 7}, TWO, launch) == {"b": 7}
    assert told == ["The run failed: no memory"]


def test_any_other_exception_ends_both(start: Callable[..., Launch]) -> None:
    launch = start()

    def wait(launch: Launch) -> int:
        while True:
            launch.halt.check()

    def refuse(_: Launch) -> int:
        raise BadInputError("no such thing")

    with pytest.raises((BadInputError, HaltedError)):
        run_beside({"a": refuse, "b": wait}, TWO, launch)
    with pytest.raises(HaltedError):
        launch.halt.check()
