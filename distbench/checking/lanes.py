"""Work in several lanes at a time, in the order of a plan, as far as there is room."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextvars import copy_context
from dataclasses import dataclass
from typing import Generic, TypeVar

from distbench.launch.engine import Room
from distbench.launch.halt import Halt

Result = TypeVar("Result")

_POLL_S = 0.2
_END_S = 30.0
"""How long the lanes may take to end what they have started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece(Generic[Result]):
    """A piece of work.

    Attributes:
        needs: What it takes of the room while it is worked on.
        work: Does it.
    """

    needs: Room
    work: Callable[[], Result]


class Lanes(Generic[Result]):
    """Does pieces of work: each begins when those before it have begun.

    Args:
        count: How many lanes there are. One is the thread that asks; it needs no room,
            since nobody else has any of it.
        room: How much they may take together. A piece that needs more is worked on
            alone.
        halt: Set when a lane is to end early.
    """

    def __init__(self, count: int, room: Room, halt: Halt) -> None:
        self._count = count
        self._room = room
        self._halt = halt
        self._turn = threading.Lock()
        self._changed = threading.Condition()
        self._taken: list[Room] = []
        self._futures: list[Future[Result]] = []

    def run(self, pieces: Sequence[Piece[Result]]) -> list[Result]:
        """Do all pieces; returns what each of them returns, in their order.

        Raises:
            BaseException: What the first of them in the order has raised. The others
                have been halted.
        """
        self._futures = [Future() for _ in pieces]
        if self._count == 1:
            for piece, future in zip(pieces, self._futures, strict=True):
                future.set_result(piece.work())
            return [future.result() for future in self._futures]
        todo = iter(zip(pieces, self._futures, strict=True))
        threads = [
            # Nobody waits at the exit for one that does not listen. Messages there name
            # options as whoever asked for the check does.
            threading.Thread(
                target=copy_context().run, args=(self._work, todo), daemon=True
            )
            for _ in range(min(self._count, len(pieces)))
        ]
        try:
            for thread in threads:
                thread.start()
            return [future.result() for future in self._futures]
        except BaseException:
            self._halt.set()
            raise
        finally:
            until_s = time.monotonic() + _END_S
            for thread in threads:
                if thread.ident is not None:
                    thread.join(max(0.0, until_s - time.monotonic()))

    def wait_for_earlier(self, number: int) -> None:
        """Wait until the first so many pieces are done: for who is one of the next.

        Raises:
            HaltedError: A lane is to end.
        """
        if self._count == 1:
            return
        earlier = self._futures[:number]
        while wait(earlier, _POLL_S).not_done:
            self._halt.check()

    def _work(self, todo: Iterator[tuple[Piece[Result], Future[Result]]]) -> None:
        while True:
            with self._turn:
                piece, future = next(todo, (None, None))
                if piece is None or future is None:
                    return
                try:
                    self._enter(piece.needs)
                except BaseException as error:  # noqa: BLE001 - it crosses to the asker
                    future.set_exception(error)
                    continue
            try:
                result = piece.work()
            except BaseException as error:  # noqa: BLE001 - it crosses to the asker
                self._leave(piece.needs)
                future.set_exception(error)
            else:
                self._leave(piece.needs)
                future.set_result(result)

    def _enter(self, needs: Room) -> None:
        with self._changed:
            while not self._has_room(needs):
                self._halt.check()
                self._changed.wait(_POLL_S)
            self._halt.check()
            self._taken.append(needs)

    def _leave(self, needs: Room) -> None:
        with self._changed:
            self._taken.remove(needs)
            self._changed.notify_all()

    def _has_room(self, needs: Room) -> bool:
        tasks = sum(taken.tasks for taken in self._taken)
        gpu_tasks = sum(taken.gpu_tasks for taken in self._taken)
        return _fits(needs.tasks, tasks, self._room.tasks) and _fits(
            needs.gpu_tasks, gpu_tasks, self._room.gpu_tasks
        )


def _fits(needed: int, taken: int, room: int) -> bool:
    return needed == 0 or taken == 0 or taken + needed <= room
