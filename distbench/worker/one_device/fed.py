"""Steps that take values from outside in the place of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distbench.trace import SparseRows
from distbench.worker.stepping.session import Session
from distbench.worker.stepping.steps import Step
from distbench.worker.taps.feeds import ByPlace, Place


class FedSteps:
    """Steps that are fed, with a trace for each set of places where they are.

    A step may leave some out, such as an actor's that only every second one makes, and
    have slices where another has none.

    Args:
        session: Makes the steps, and has the board that feeds them.
        any_size: Whether one trace does for batches of all sizes.
    """

    def __init__(self, session: Session, *, any_size: bool = False) -> None:
        self._session = session
        self._any_size = any_size
        self._steps: dict[frozenset[tuple[Place, bool]], Step] = {}

    @contextmanager
    def feed(self, fed: ByPlace, batch: Any) -> Iterator[Step]:
        """Inside, a step takes these values.

        Args:
            fed: By place.
            batch: What it is run on, or one like it.

        Yields:
            What to run, as often as one likes.
        """
        session, board = self._session, self._session.board
        kinds = frozenset((at, isinstance(v, SparseRows)) for at, v in fed.items())
        if kinds not in self._steps:
            self._steps[kinds] = session.make_step(any_size=self._any_size)
        step = self._steps[kinds]
        with board.feed(fed):
            with session.guard("step"):
                # The feeds come into being while the step is traced.
                step.trace([batch])
            board.set_feeds()
            yield step
