"""What is kept of a step: what passed its taps, and the state that it left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from distbench.trace import INITIAL, Recorded, TraceKey, Value
from distbench.worker.families import find_counter
from distbench.worker.recording.board import RecordingBoard
from distbench.worker.recording.digests import digest_component, digest_values
from distbench.worker.state.components import read_component
from distbench.worker.taps.collect import State, collect_state, collect_taps, read_state
from distbench.worker.taps.learned import LearnedTable


class Kept:
    """Reads the values of each step, and of each variable those before the first."""

    def __init__(
        self,
        board: RecordingBoard,
        table: LearnedTable,
        optimizers: Sequence[Any],
        *,
        first_replica: int,
        digests: bool,
    ) -> None:
        self._board = board
        self._table = table
        self._optimizers = optimizers
        self._first_replica = first_replica
        self._digests = digests
        self._read = digest_component if digests else read_component
        self._initial: State = {}
        self._begun: set[tuple[str, int]] = set()

    def read_initial(self) -> None:
        """Keep the values of what a step is about to change for the first time."""
        traced = not tf.executing_eagerly()
        with tf.init_scope():
            if traced:
                # Only now have the slots come into being.
                self._list_state()
            for variable in self._table.state:
                if variable.info.role != "variable" and not traced:
                    continue  # it may be another step's
                for number, component in enumerate(variable.components):
                    place = variable.info.path, number
                    if place in self._begun or not bool(component.is_initialized()):
                        continue
                    self._begun.add(place)
                    self._initial[place] = self._read(component)

    def read_step(self, number: int) -> dict[TraceKey, Value]:
        """The values of the step that has ended, and initial ones not read before."""
        values: dict[TraceKey, Value] = {}
        collect_taps(self._board, number, values)
        if self._digests:
            digest_values(values)
        self._list_state()
        state = read_state(self._table, read=self._read)
        self._begun |= state.keys()
        begun = {place: v for place, v in self._initial.items() if place in state}
        self._collect(INITIAL, begun, values)
        self._initial = {}
        self._collect(number, state, values)
        return values

    def _list_state(self) -> None:
        self._table.refresh(self._optimizers, self._board.variables, find_counter)

    def _collect(self, step: int, state: State, values: Recorded) -> None:
        collect_state(
            self._table, step, state, values, first_replica=self._first_replica
        )
