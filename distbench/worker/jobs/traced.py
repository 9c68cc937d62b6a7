"""What a traced step tells of a program, whatever its numbers will be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from distbench.trace.settings import note_settings
from distbench.worker.state.handles import Handles
from distbench.worker.state.python_numbers import read_numbers
from distbench.worker.stepping.session import Session
from distbench.worker.taps.draws import find_draws, find_seeds
from distbench.worker.taps.exchange import find_exchange, list_shared_state
from distbench.worker.taps.handed_on import count_roundings
from distbench.worker.taps.kept_tensors import list_kept_tensors
from distbench.worker.taps.made_of import (
    list_state_of_derivatives,
    list_state_of_gradients,
    list_state_of_losses,
)
from distbench.worker.taps.past_sums import list_past_sums
from distbench.worker.taps.written import order_writes

_PATHS = ("shared_state", "of_losses", "of_gradients", "of_derivatives", "written")
"""Notes that are paths of variables."""


def rename_noted(
    notes: Mapping[str, object], paths: Mapping[str, str]
) -> dict[str, object]:
    """Notes as of a run in which variables have other paths."""
    found = {name: cast(Sequence[str], notes[name]) for name in _PATHS}
    roundings = cast(Mapping[str, int], notes["roundings"])
    return {
        **notes,
        **{name: [paths.get(p, p) for p in noted] for name, noted in found.items()},
        "roundings": {paths.get(p, p): n for p, n in roundings.items()},
    }


def note_traced(session: Session, graph: Any) -> dict[str, object]:
    """Notes for the trace of a run, as JSON values.

    Args:
        session: Of the program; its board knows what was traced.
        graph: The traced step.
    """
    seen, table = session.board.seen, session.table
    exchange = find_exchange(seen, table)
    by_gradients = exchange == "features" and exchange != find_exchange(
        seen, table, after_gradients=False
    )
    seeds = find_seeds(graph)
    past_sums: list[str] = []
    if seeds:  # it takes a walk through the whole graph
        past_sums = list_past_sums(graph, Handles(table).known, session.traced_for)
    return {
        "draws": find_draws(graph),
        "seeds": seeds,
        "past_sums": past_sums,
        "exchange": exchange,
        "exchange_by_gradients": by_gradients,
        "shared_state": list(list_shared_state(seen, table)),
        "of_losses": list(list_state_of_losses(seen, table)),
        "of_gradients": list(list_state_of_gradients(seen, table)),
        "of_derivatives": list(list_state_of_derivatives(seen, table)),
        "roundings": count_roundings(seen, session.board.list_summed()),
        "numbers": read_numbers(session.optimizers),
        **note_settings(session.settings, session.first_replica),
        "written": list(order_writes(graph, table)),
        "unread_feeds": list(session.program.unread_feeds()),
        "traced_for": session.traced_for,
        "kept_tensors": list(list_kept_tensors(session.program.root(), seen)),
    }
