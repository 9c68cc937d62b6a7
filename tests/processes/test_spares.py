"""Groups that wait to be wanted: who gets them, and what becomes of them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from launch_support import TIMEOUT_S, make_request
from waiting import comes_true, is_gone_soon

from distbench.cluster import ClusterSpec
from distbench.errors import ClusterError
from distbench.launch.engine import Room
from distbench.launch.group import Group
from distbench.launch.halt import Halt, HaltedError
from distbench.launch.local import LocalEngine
from distbench.launch.rundir import RunDirectory
from distbench.launch.spares import KEEP_S, Spares
from distbench.launch.start import start_group

SPEC = ClusterSpec.parse("mwms:2")


class Machine(LocalEngine):
    """Has room for so many tasks."""

    tasks = 8

    def find_room(self) -> Room:
        return Room(tasks=self.tasks, gpu_tasks=0)


def start_ahead(directory: RunDirectory) -> Group:
    return start_group(make_request(SPEC, directory), LocalEngine())


class Bench:
    """Takes groups of two tasks and of one; has a clock that somebody sets."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.machine = Machine()
        self.spares = Spares(self.machine, clock=lambda: self.now_s)
        self.places: list[Path] = []

    def take(self, key: str = "two", halt: Halt | None = None) -> Group | None:
        return self.spares.take(key, 2, self._start, halt or Halt())

    def _start(self, directory: RunDirectory) -> Group:
        self.places.append(directory.path)
        return start_ahead(directory)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    with closing(bench.spares):
        yield bench


def test_what_was_wanted_waits_and_serves_one(bench: Bench) -> None:
    assert bench.take() is None
    bench.spares.fill()
    group = bench.take()
    assert group is not None
    with group:
        results = group.call("echo", {"x": 1}, deadline=TIMEOUT_S)
        assert [result["x"] for result in results.values()] == [1, 1]
        assert bench.take() is None
        assert bench.take("another key") is None


@pytest.mark.parametrize("changed", ["environment", "folder", "path"])
def test_one_serves_in_the_surroundings_that_it_was_started_in(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    bench.take()
    with monkeypatch.context() as patch:
        if changed == "environment":
            patch.setenv("MODE", "test")
        elif changed == "folder":
            patch.chdir(tmp_path)
        else:
            patch.syspath_prepend(tmp_path)
        # It is started in what is there now, not when it was wanted.
        bench.spares.fill()
    assert bench.take() is None
    assert len(list(bench.spares.list_waiting())) == 1


def test_as_many_wait_as_were_wanted(bench: Bench) -> None:
    for _ in range(3):
        assert bench.take() is None
    bench.spares.fill()
    groups = [bench.take() for _ in range(4)]
    assert [group is None for group in groups] == [False, False, False, True]
    for group in groups[:3]:
        assert group is not None
        group.close()


def test_what_nobody_took_ends(bench: Bench) -> None:
    bench.take()
    bench.spares.fill()
    (group,) = bench.spares.list_waiting()
    assert bench.take("another key") is None
    bench.spares.fill()
    assert group.closed
    assert bench.take() is None


def test_one_whose_task_died_is_not_given_away(bench: Bench) -> None:
    bench.take()
    bench.take()
    bench.spares.fill()
    first = bench.take()
    assert first is not None
    with first:
        (other,) = bench.spares.list_waiting()
        os.kill(next(iter(other.pids.values())), signal.SIGKILL)
        assert comes_true(lambda: not other.is_whole)
        assert bench.take() is None
        assert other.closed


def test_those_that_wait_too_long_end(bench: Bench) -> None:
    bench.take()
    bench.spares.fill()
    (group,) = bench.spares.list_waiting()
    bench.now_s = KEEP_S
    bench.spares.end_old()
    assert not group.closed
    bench.now_s += 1.0
    bench.spares.end_old()
    assert group.closed
    assert bench.take() is None


def test_who_has_taken_one_keeps_it_and_its_files(bench: Bench) -> None:
    bench.take()
    bench.take()
    bench.spares.fill()
    group = bench.take()
    assert group is not None
    with group:
        bench.now_s = KEEP_S + 1.0
        assert bench.take() is None
        assert list(bench.spares.list_waiting()) == []
        assert group.call("echo", {}, deadline=TIMEOUT_S).keys() == set(group.tasks)
        assert group.read_logs().keys() == set(group.tasks)
        assert all(place.is_dir() for place in bench.places)


@pytest.mark.parametrize("room", [4, 5])
def test_there_are_as_many_as_the_machine_has_room_for(bench: Bench, room: int) -> None:
    bench.machine.tasks = room
    for _ in range(4):
        bench.take()
    bench.spares.fill()
    assert len(list(bench.spares.list_waiting())) == 2


def test_one_that_cannot_start_is_left_to_who_wants_it(bench: Bench) -> None:
    def fail(directory: RunDirectory) -> Group:
        raise ClusterError(f"no room in {directory.path}")

    bench.spares.take("broken", 2, fail, Halt())
    bench.spares.fill()
    assert bench.spares.take("broken", 2, fail, Halt()) is None


def test_who_takes_one_may_halt_it(bench: Bench) -> None:
    bench.take()
    bench.spares.fill()
    halt = Halt()
    group = bench.take(halt=halt)
    assert group is not None
    wait = group.submit("wait_stubbornly", {}, deadline=600.0)
    threading.Timer(0.1, halt.set).start()
    with pytest.raises(HaltedError):
        wait()


def test_at_the_end_nothing_is_left() -> None:
    places: list[Path] = []

    def start(directory: RunDirectory) -> Group:
        places.append(directory.path)
        return start_ahead(directory)

    with closing(Spares(Machine())) as spares:
        take = partial(spares.take, "two", 2, start, Halt())
        take()
        spares.fill()
        (group,) = spares.list_waiting()
        pids = group.pids.values()
    assert [pid for pid in pids if not is_gone_soon(pid)] == []
    assert [place for place in places if place.exists()] == []
