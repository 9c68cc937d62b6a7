"""What a step left in taps and variables, as values of a trace."""

from __future__ import annotations

from collections.abc import Callable, Collection, MutableMapping
from typing import Any

import numpy as np
import numpy.typing as npt

from distbench.trace import PHASES, Phase, Recorded, TraceKey
from distbench.worker.state.components import read_component
from distbench.worker.state.variables import VariableTable
from distbench.worker.taps.board import TapBoard

State = MutableMapping[tuple[str, int], npt.NDArray[np.generic]]
"""Values by path and local number of the component."""


def read_state(
    table: VariableTable,
    paths: Collection[str] | None = None,
    read: Callable[[Any], npt.NDArray[np.generic]] = read_component,
) -> State:
    """Every variable of a table that this task can see, or some of them.

    Args:
        table: What there is.
        paths: Those to read; None takes all.
        read: What is kept of a plain variable.
    """
    return {
        (variable.info.path, number): read(component)
        for variable in table.state
        if paths is None or variable.info.path in paths
        for number, component in enumerate(variable.components)
    }


def sketch_state(table: VariableTable) -> dict[str, tuple[float, float]]:
    """Two numbers of each variable's first copy, by path: what is otherwise moves them.

    Its norm, and its product with a vector of random numbers.
    """
    return {
        variable.info.path: _sketch(read_component(variable.components[0]))
        for variable in table.state
        if variable.components
    }


def _sketch(value: npt.NDArray[Any]) -> tuple[float, float]:
    if value.dtype.hasobject:
        return 0.0, 0.0  # of texts no sum is made
    flat = value.ravel().astype(np.float64)
    drawn = np.random.default_rng(flat.size).normal(size=flat.size)
    return float(np.linalg.norm(flat)), float(flat @ drawn)


def collect_taps(
    board: TapBoard,
    step: int,
    values: Recorded,
    *,
    replica: int | None = None,
    phases: Collection[Phase] = PHASES,
) -> None:
    """Add to a trace what the taps saw in the step that ran last.

    Args:
        board: Where the taps are.
        step: Its number.
        values: Where to.
        replica: Of whom one device computed it; by default who did.
        phases: What to add.
    """
    for point, value in board.read().items():
        if point.phase not in phases:
            continue
        key = TraceKey(
            step=step,
            call=point.call,
            phase=point.phase,
            variable=point.variable,
            replica=point.replica if replica is None else replica,
        )
        values[key] = value


def collect_state(
    table: VariableTable,
    step: int,
    state: State,
    values: Recorded,
    *,
    first_replica: int = 0,
    replica: int | None = None,
) -> None:
    """Add a state to a trace, as that after a step.

    Args:
        table: What the state is of.
        step: Its number.
        state: What was read.
        values: Where to.
        first_replica: Global number of this task's first replica.
        replica: Of whom one device computed it; by default who holds it.
    """
    phases = {v.info.path: v.info.role for v in table.state}
    for (path, number), array in state.items():
        key = TraceKey(
            step=step,
            phase=phases[path],
            variable=path,
            replica=first_replica + number if replica is None else replica,
        )
        values[key] = array


def put_back(after: State, moved: State, start: State) -> State:
    """What a step would have left had it added the same to a start that was not moved.

    Args:
        after: The state after the step.
        moved: That which the step started from.
        start: What `moved` was made of.
    """
    found = dict(after)
    for key, array in after.items():
        if key in moved and moved[key].tobytes() != start[key].tobytes():
            parts = (array, moved[key], start[key])
            left, begun, due = (np.asarray(part, np.float64) for part in parts)
            found[key] = (left - begun + due).astype(array.dtype)
    return found
