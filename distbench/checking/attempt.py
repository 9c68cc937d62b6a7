"""Runs beside those of a scenario, without which it is judged all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from distbench.errors import BadInputError, ClusterError
from distbench.observe import Launch

_Found = TypeVar("_Found")


def attempt(launch: Launch, what: str, run: Callable[[], _Found]) -> _Found | None:
    """What a further run shows; None where it does not get to its end, which is told.

    Args:
        launch: How tasks are started.
        what: What messages call the run.
        run: Runs it.
    """
    try:
        return run()
    except (BadInputError, ClusterError) as error:
        launch.log(f"{what} failed: {error}")
        return None
