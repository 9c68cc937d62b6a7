"""Steps that take their gradients from outside."""

from __future__ import annotations

from typing import Any

from distbench.trace import Phase, SparseRows
from distbench.worker.stepping.session import Session
from distbench.worker.stepping.steps import Step


class FedStep:
    """A step that takes what the board feeds; traced anew only for other kinds.

    Args:
        session: Has the board and makes the step.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._step: Step | None = None
        self._kinds: tuple[Phase, dict[Any, bool]] | None = None

    def find(self, phase: Phase) -> Step:
        """The step for what the board holds; another one if the last does not fit."""
        board = self._session.board
        kinds = {place: isinstance(v, SparseRows) for place, v in board.fed.items()}
        if self._step is None or self._kinds != (phase, kinds):
            board.forget()
            self._step = self._session.make_step()
            self._kinds = phase, kinds
        return self._step
