"""Work at the same time begins in its order, and ends together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from launch_support import TIMEOUT_S

from distbench.checking import lanes as lanes_module
from distbench.checking.lanes import Lanes, Piece
from distbench.launch.engine import Room
from distbench.launch.halt import Halt, HaltedError
from distbench.spelling import spell, spelled

WIDE = Room(tasks=100, gpu_tasks=0)
ONE = Room(tasks=1, gpu_tasks=0)


def make_pieces(*works: Callable[[], int], needs: Room = ONE) -> list[Piece[int]]:
    return [Piece(needs=needs, work=work) for work in works]


def make_lanes(count: int, room: Room = WIDE) -> Lanes[int]:
    return Lanes(count, room, Halt())


class Counted:
    """Work of which it is known how much is done at the same time."""

    def __init__(self) -> None:
        self.most = 0
        self._now: list[Room] = []
        self._lock = threading.Lock()

    def make(self, needs: Room) -> Piece[int]:
        def work() -> int:
            with self._lock:
                self._now.append(needs)
                self.most = max(self.most, sum(one.tasks for one in self._now))
            # Long enough for the others to begin, if they may.
            threading.Event().wait(0.05)
            with self._lock:
                self._now.remove(needs)
            return needs.tasks

        return Piece(needs=needs, work=work)


@pytest.mark.parametrize("count", [1, 3])
def test_results_come_in_the_order_of_the_plan(count: int) -> None:
    works = [lambda number=number: number for number in range(20)]
    assert make_lanes(count).run(make_pieces(*works)) == list(range(20))


def test_as_many_pieces_are_worked_on_as_there_are_lanes() -> None:
    meet = threading.Barrier(3, timeout=TIMEOUT_S)
    works = [meet.wait for _ in range(3)]
    assert sorted(make_lanes(3).run(make_pieces(*works))) == [0, 1, 2]
    threads: set[int] = set()
    make_lanes(1).run(make_pieces(*[lambda: threads.add(threading.get_ident()) or 0]))
    assert threads == {threading.get_ident()}


def test_there_is_never_more_than_the_room_holds() -> None:
    counted = Counted()
    sizes = [2, 1, 2, 2, 1, 1, 2, 1]
    pieces = [counted.make(Room(tasks=size, gpu_tasks=0)) for size in sizes]
    assert make_lanes(4, Room(tasks=3, gpu_tasks=0)).run(pieces) == sizes
    assert counted.most <= 3


@pytest.mark.parametrize(
    ("needs", "room"),
    [
        (Room(tasks=3, gpu_tasks=0), Room(tasks=2, gpu_tasks=0)),
        # As on one machine, where each cluster counts its GPUs from the first one.
        (Room(tasks=1, gpu_tasks=1), Room(tasks=9, gpu_tasks=0)),
    ],
    ids=["tasks", "gpus"],
)
def test_what_needs_more_than_there_is_is_worked_on_alone(
    needs: Room, room: Room
) -> None:
    counted = Counted()
    make_lanes(4, room).run([counted.make(needs) for _ in range(4)])
    assert counted.most == needs.tasks


def test_a_piece_may_wait_for_those_before_it() -> None:
    lanes, told, second = make_lanes(2), [], threading.Event()

    def be_first() -> int:
        assert second.wait(TIMEOUT_S)
        told.append("first")
        return 1

    def be_second() -> int:
        second.set()
        lanes.wait_for_earlier(1)
        told.append("second")
        return 2

    assert lanes.run(make_pieces(be_first, be_second)) == [1, 2]
    assert told == ["first", "second"]


def test_the_first_failure_in_the_plan_is_raised_and_the_others_halt() -> None:
    halt, later = Halt(), threading.Event()
    ended: list[str] = []

    def fail_late() -> int:
        assert later.wait(TIMEOUT_S)
        raise ValueError("the first")

    def fail_early() -> int:
        later.set()
        raise ValueError("the second")

    def go_on() -> int:
        try:
            while True:
                halt.check()
                threading.Event().wait(0.01)
        finally:
            ended.append("third")

    lanes: Lanes[int] = Lanes(3, WIDE, halt)
    with pytest.raises(ValueError, match="the first"):
        lanes.run(make_pieces(fail_late, fail_early, go_on, lambda: 0))
    assert ended == ["third"]


def test_lanes_that_do_not_listen_are_waited_for_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not one after the other: whoever pressed Ctrl-C waits as well."""
    now_s, go_on = [0.0], threading.Event()
    meet = threading.Barrier(5, timeout=TIMEOUT_S)

    def join(thread: threading.Thread, timeout_s: float) -> None:
        now_s[0] += timeout_s

    def fail() -> int:
        meet.wait()
        raise ValueError("oh")

    def wait() -> int:
        meet.wait()
        return int(go_on.wait(TIMEOUT_S))

    clock = SimpleNamespace(monotonic=lambda: now_s[0])
    monkeypatch.setattr(lanes_module, "time", clock)
    monkeypatch.setattr(threading.Thread, "join", join)
    with pytest.raises(ValueError, match="oh"):
        make_lanes(5).run(make_pieces(fail, *[wait] * 4))
    assert now_s == [lanes_module._END_S]
    go_on.set()


class Watched:
    """The turn of some lanes, of which it is known how many have asked for it."""

    def __init__(self, lanes: Lanes[int]) -> None:
        self.asked = Counting()
        self._lock = lanes._turn
        lanes._turn = self  # type: ignore[assignment]  # it locks as well

    def __enter__(self) -> None:
        self.asked.add()
        self._lock.__enter__()

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__(None, None, None)


class Counting:
    """A number that others wait for."""

    def __init__(self) -> None:
        self._number = 0
        self._changed = threading.Condition()

    def add(self) -> None:
        with self._changed:
            self._number += 1
            self._changed.notify_all()

    def wait_for(self, number: int) -> None:
        with self._changed:
            is_there = self._changed.wait_for(lambda: self._number >= number, TIMEOUT_S)
        assert is_there


def test_a_small_piece_does_not_pass_a_large_one_that_waits_for_room() -> None:
    """A large one would wait for as long as there are small ones."""
    begun: list[str] = []
    lanes = make_lanes(3, Room(tasks=2, gpu_tasks=0))
    turn = Watched(lanes)

    def be_first() -> int:
        turn.asked.wait_for(3)
        begun.append("first")
        return 1

    def go(name: str) -> Callable[[], int]:
        return lambda: begun.append(name) or 0

    pieces = [
        Piece(needs=ONE, work=be_first),
        Piece(needs=Room(tasks=2, gpu_tasks=0), work=go("large")),
        Piece(needs=ONE, work=go("small")),
    ]
    assert lanes.run(pieces) == [1, 0, 0]
    assert begun == ["first", "large", "small"]


def test_who_waits_for_room_or_for_others_halts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes_module, "_POLL_S", 0.01)
    halt, there, gone = Halt(), Counting(), threading.Event()
    lanes: Lanes[int] = Lanes(4, Room(tasks=3, gpu_tasks=0), halt)
    turn = Watched(lanes)

    def fail() -> int:
        turn.asked.wait_for(4)
        there.wait_for(2)
        raise ValueError("no more")

    def wait_for_others() -> int:
        there.add()
        try:
            lanes.wait_for_earlier(2)
        finally:
            gone.set()
        return 0

    def be_at_work() -> int:
        there.add()
        assert gone.wait(TIMEOUT_S)
        return 0

    begun: list[str] = []
    pieces = make_pieces(fail, be_at_work, wait_for_others)
    large = Piece(needs=Room(tasks=3, gpu_tasks=0), work=lambda: begun.append("") or 0)
    with pytest.raises(ValueError, match="no more"):
        lanes.run([*pieces, large, large])
    assert begun == []
    errors = [type(f.exception(TIMEOUT_S)) for f in lanes._futures]
    assert errors == [ValueError, type(None), *[HaltedError] * 3]


def test_nothing_begins_once_one_has_failed() -> None:
    lanes = make_lanes(2, Room(tasks=2, gpu_tasks=0))
    meet, begun = threading.Barrier(2, timeout=TIMEOUT_S), []

    def fail() -> int:
        meet.wait()
        raise ValueError("no more")

    def hold_room() -> int:
        meet.wait()
        assert isinstance(lanes._futures[2].exception(TIMEOUT_S), HaltedError)
        return 0

    def begin() -> int:
        begun.append(1)
        return 0

    large = Piece(needs=Room(tasks=2, gpu_tasks=0), work=begin)
    with pytest.raises(ValueError, match="no more"):
        lanes.run([*make_pieces(fail, hold_room), large, *make_pieces(begin)])
    assert isinstance(lanes._futures[3].exception(TIMEOUT_S), HaltedError)
    assert begun == []


def test_lanes_know_what_their_asker_calls_an_option() -> None:
    pieces = [Piece(needs=ONE, work=lambda: spell("steps")) for _ in range(2)]
    with spelled(lambda field: f"--{field}"):
        assert Lanes[str](2, WIDE, Halt()).run(pieces) == ["--steps", "--steps"]
