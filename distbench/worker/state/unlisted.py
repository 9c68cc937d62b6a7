"""Variables that a step uses, and that nobody has named."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import tensorflow as tf

from distbench.worker.state.components import list_components, list_shards
from distbench.worker.state.graphs import list_ops
from distbench.worker.state.handles import find_outermost, list_written

_DRAWS = "Rng"
"""How the type of an op begins that moves a generator of random numbers on."""


def list_unlisted(
    held: Iterable[Any],
    graph: tf.Graph,
    known: Iterable[Any],
    *,
    used_between: bool = False,
) -> list[Any]:
    """Variables that a step uses, and that nobody has named.

    What a step counts, say, leads the next one whether it is listed or not, and whoever
    holds it: a program, a module or nobody but the function. Of what the program does
    not hold that is what the step writes; weights of a network that others have trained
    stay as they are. But for the state of generators of random numbers: a strategy
    gives each replica another one, and a state of its own.

    Args:
        held: Where to look for them first.
        graph: The traced step.
        known: Variables that belong to somebody else.
        used_between: Whether Python code uses what is held between two steps as well,
            which no graph shows.
    """
    used = {id(outer) for outer, _ in graph.captures}
    seen = {id(part) for variable in known for part in list_components(variable)}
    found = {}
    others = _list_written(graph, seen)
    own = list(list_shards(held))
    if used_between:
        used |= {id(p.handle) for variable in own for p in list_components(variable)}
    for variable in itertools.chain(own, others):
        parts = list_components(variable)
        handles = {id(part.handle) for part in parts} & used
        if handles and seen.isdisjoint(map(id, parts)):
            seen.update(map(id, parts))
            found[frozenset(handles)] = variable
    if not found:
        return []
    drawn = {
        id(find_outermost(op.inputs[0]))
        for op in list_ops(graph)
        if op.type.startswith(_DRAWS)
    }
    return [variable for handles, variable in found.items() if not handles & drawn]


def _list_written(graph: Any, seen: Collection[int]) -> Iterator[Any]:
    """What a graph writes and nobody has, in the order in which it came to it.

    Args:
        graph: The traced step.
        seen: Identities of the variables that somebody has.
    """
    accessed = {id(v.handle): v for v in graph.variables if id(v) not in seen}
    if not accessed:
        return  # to look through all ops takes long
    written = {id(find_outermost(tensor)) for tensor in list_written(graph)}
    for outer, _ in graph.captures:
        if id(outer) in accessed and id(outer) in written:
            find_whole = getattr(outer, "_distributed_container", lambda: None)
            whole = find_whole()
            yield accessed[id(outer)] if whole is None else whole
