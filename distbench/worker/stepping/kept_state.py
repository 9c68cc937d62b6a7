"""What a built subject keeps from step to step, and how it comes into a trace."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from distbench.trace import (
    PHASES,
    SHOWN,
    MetricInfo,
    Phase,
    Recorded,
    TraceKey,
    Values,
    VariableInfo,
)
from distbench.trace.shelf import Shelf
from distbench.worker.families import find_counter
from distbench.worker.state.components import list_shards, write_component
from distbench.worker.state.metrics import name_metrics, name_state, read_result
from distbench.worker.state.reachable import walk_variables
from distbench.worker.state.unlisted import list_unlisted
from distbench.worker.state.values import have_same_bits
from distbench.worker.state.variables import VariableTable, list_state
from distbench.worker.stepping.program import Program
from distbench.worker.stepping.refused import check_shapes
from distbench.worker.taps.board import TapBoard
from distbench.worker.taps.collect import State, collect_state, collect_taps, read_state
from distbench.worker.taps.spoilt import Spoilt


class KeptState:
    """Variables and metrics of a subject in one task.

    Attributes:
        program: What trains.
        strategy: Under which it trains.
        optimizers: All that the program has.
        table: Its variables by name.
        board: What passed the taps of the last step.
        spoilt: Which replicas handed Inf or NaN to a collective in the last step.
        first_replica: Global number of the task's first replica.
        shelf: Where large arrays of what is recorded are put; None keeps them.
    """

    program: Program
    strategy: tf.distribute.Strategy
    optimizers: Sequence[Any]
    table: VariableTable
    board: TapBoard
    spoilt: Spoilt
    first_replica: int
    shelf: Shelf | None
    _metrics: Mapping[str, Any]
    _is_unread: bool

    def refresh_state(
        self, graph: tf.Graph, listed: Sequence[Any], metrics: Sequence[Any]
    ) -> None:
        """List the variables anew: the first step may have made some.

        Args:
            graph: The traced step.
            listed: The variables that the program lists now.
            metrics: Its metrics.
        """
        others = (walk_variables(part) for part in (*self.optimizers, *metrics))
        known = list_shards(
            itertools.chain(listed, self.program.bookkeeping(), *others)
        )
        unlisted = list_unlisted(
            self.program.held_variables(),
            graph,
            known,
            used_between=self.program.acts_between_steps,
        )
        listed = [*listed, *unlisted]
        more = name_state(metrics, listed)
        shown = [v for metric in metrics for v in metric.variables if id(v) in more]
        self.table.replace(
            list_state(
                [*listed, *shown],
                self.optimizers,
                self.board.variables | self.spoilt.variables,
                find_counter,
                given_names={**more, **self.program.names()},
            )
        )
        used = {id(outer) for outer, _ in graph.captures}
        self.table.mark_unlisted(shown, unlisted, used)
        named = name_metrics(metrics)
        self._metrics = {
            name: metric
            for name, metric in named.items()
            if all(map(self.table.has, metric.variables))
        }

    def list_counted(self) -> dict[str, list[str]]:
        """By the path of each optimizer's counter, what it is given gradients of."""
        found: dict[str, set[str]] = {}
        for optimizer, paths in self.board.seen.updated:
            counter = find_counter(optimizer)
            if counter is not None and self.table.has(counter):
                # Several may count in one place.
                found.setdefault(self.table.find_path(counter), set()).update(paths)
        return {counter: sorted(paths) for counter, paths in found.items()}

    def rename(self, paths: Mapping[str, str]) -> None:
        """Call variables by other paths, in what is recorded and fed as well."""
        self.table.rename(paths)
        self.board.rename(paths)

    def read_state(self, paths: Collection[str] | None = None) -> State:
        """Every variable of the subject that this task can see, or some of them."""
        state = read_state(self.table, paths)
        check_shapes(self.table, state)
        return state

    def write_state(self, values: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Set variables on every replica of this task; others are left alone.

        So are those of another shape: one device has nothing in their place.
        """
        for variable in self.table.state:
            value = values.get(variable.info.path)
            if value is not None and value.shape == variable.info.shape:
                for component in variable.components:
                    write_component(component, value)

    def restore_state(self, state: State) -> None:
        """Set every component to what `read_state` returned.

        What a step left in taps that nobody asked for, or left when it raised, would
        pass for that of the next one: it goes as well.
        """
        if self._is_unread:
            self.board.read()
            self._is_unread = False
        for variable in self.table.state:
            for number, component in enumerate(variable.components):
                write_component(component, state[variable.info.path, number])

    @property
    def variables(self) -> tuple[VariableInfo, ...]:
        """What is known of each variable, in the table's order."""
        return tuple(variable.info for variable in self.table.state)

    @property
    def metrics(self) -> tuple[MetricInfo, ...]:
        """What the program shows besides its loss."""
        return tuple(
            MetricInfo(
                name=name,
                state=tuple(self.table.find_path(v) for v in metric.variables),
            )
            for name, metric in self._metrics.items()
        )

    def make_values(self) -> Values[Any]:
        """An empty record, of which no large array stays in memory."""
        return Values(shelf=self.shelf)

    def collect_results(self, step: int, state: State, values: Recorded) -> None:
        """Add to a trace what the metrics show after a step.

        Args:
            step: Its number.
            state: What the step left. A user's metric may forget what it is asked for,
                so what becomes of its state by that is undone.
            values: Where to.
        """
        for name, number in self.program.shown.items():
            key = TraceKey(step=step, phase="loss", variable=f"{SHOWN}{name}")
            values[key] = number
        with self.strategy.scope():
            for name, metric in self._metrics.items():
                result = read_result(metric)
                if result is not None:
                    key = TraceKey(step=step, phase="loss", variable=name)
                    values[key] = result
        kept = {path for metric in self.metrics for path in metric.state}
        now = self.read_state(kept)
        if any(not have_same_bits(now[key], state[key]) for key in now):
            self.restore_state(state)

    def collect_taps(
        self,
        step: int,
        values: Recorded,
        *,
        replica: int | None = None,
        phases: Collection[Phase] = PHASES,
    ) -> None:
        """Add to a trace what the taps saw in the step that ran last.

        Args:
            step: Its number.
            values: Where to.
            replica: Of whom one device computed it; by default who did.
            phases: What to add.
        """
        self._is_unread = False
        collect_taps(self.board, step, values, replica=replica, phases=phases)

    def collect_state(
        self,
        step: int,
        state: State,
        values: Recorded,
        *,
        replica: int | None = None,
    ) -> None:
        """Add a state to a trace, as that after a step; see `collect_taps`."""
        collect_state(
            self.table,
            step,
            state,
            values,
            first_replica=self.first_replica,
            replica=replica,
        )
