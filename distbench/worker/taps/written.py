"""In which order a traced step assigns to variables."""

from __future__ import annotations

from typing import Any

from distbench.worker.state.variables import VariableTable
from distbench.worker.taps.backwards import Writes


def order_writes(graph: Any, table: VariableTable) -> tuple[str, ...]:
    """Paths of what a step assigns to, from what it assigns to first.

    Not of what an op of an optimizer updates, or an inner function of the graph.
    """
    writes = Writes(graph)
    places = {
        variable.info.path: place
        for variable in table.state
        if (place := writes.find_first(variable.components)) is not None
    }
    return tuple(sorted(places, key=places.__getitem__))
