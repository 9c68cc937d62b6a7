"""Has further runs of a scenario made beside each other, as far as there is room."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from distbench.checking.lanes import Lanes, Piece
from distbench.errors import ClusterError
from distbench.launch.engine import Room
from distbench.observe import Launch

Result = TypeVar("Result")


def run_beside(
    asks: Mapping[str, Callable[[Launch], Result]], needs: Room, launch: Launch
) -> dict[str, Result]:
    """Make runs of which none needs what another one shows.

    Who has company has less memory and time: a run that fails so is made once more,
    alone.

    Args:
        asks: Makes each run, by its name, which what fails is told with. Raises
            ClusterError where nothing was learnt.
        needs: What each of them takes.
        launch: How their tasks are started. Where several scenarios share the machine
            already, one run comes after the other.

    Returns:
        What was learnt, by the same names.
    """
    found: dict[str, Result | ClusterError] = {}
    if len(asks) > 1 and launch.sharers == 1:
        shared = replace(launch, sharers=len(asks))
        lanes: Lanes[Result | ClusterError] = Lanes(
            len(asks), launch.engine.find_room(), launch.halt
        )
        works = [partial(_try, ask, shared) for ask in asks.values()]
        pieces = [Piece(needs=needs, work=work) for work in works]
        found = dict(zip(asks, lanes.run(pieces), strict=True))
    learnt: dict[str, Result] = {}
    for name, ask in asks.items():
        answer = found.get(name)
        if answer is None or isinstance(answer, ClusterError):
            answer = _try(ask, launch)
        if isinstance(answer, ClusterError):
            launch.log(f"{name} failed: {answer}")
        else:
            learnt[name] = answer
    return learnt


def _try(ask: Callable[[Launch], Result], launch: Launch) -> Result | ClusterError:
    try:
        return ask(launch)
    except ClusterError as error:
        return error
