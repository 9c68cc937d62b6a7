"""Where a step draws numbers that lead its state by another way than a sum.

What replicas draw by their numbers one device does not have. If all that state has of
them came through sums over all replicas, each of which may draw for itself, nobody says
which numbers are due. Who makes something of a sum with the numbers of one replica, as
if all had them, or assigns what is made of them as it is, needs the same on all.

Of what inner functions and loops draw, or what they do to variables, it is not seen
which way it goes: that counts as another way.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

import tensorflow as tf

from distbench.trace.drawing import is_drawing
from distbench.worker.state.graphs import list_called, list_inner
from distbench.worker.state.handles import READS
from distbench.worker.taps.backwards import Backwards, is_communicated, is_eager
from distbench.worker.taps.callers import find_caller, name_line
from distbench.worker.taps.intermediates import find_scope

_READING = (*READS, "VariableShape")


def list_past_sums(graph: Any, known: Set[int], replicas: int) -> list[str]:
    """The lines of such draws.

    Args:
        graph: The traced step, of all replicas of this task.
        known: The variables of its state, by identity of handles.
        replicas: How many of them this task has.
    """
    names = {i.name for o, i in getattr(graph, "captures", ()) if id(o) in known}
    backwards, found, seen = Backwards(), set[str](), set[str]()
    waiting = list(_list_assigned(graph, names))
    while waiting:
        tensor = waiting.pop()
        if is_eager(tensor) or tensor.graph is not graph or tensor.name in seen:
            continue
        seen.add(tensor.name)
        if is_communicated(tensor) or _adds_replicas(tensor.op, replicas):
            continue
        found.update(_name_draws(tensor.op))
        waiting += backwards.list_sources(tensor)
    return sorted(found)


def _list_assigned(graph: Any, names: set[str]) -> Iterator[Any]:
    """What ops are given that change variables, beside these."""
    for op in graph.get_operations():
        changes = any(given.name in names for given in op.inputs) and (
            not all(_is_reading(inner) for inner in (op, *list_inner(op)))
        )
        if changes:
            yield from (given for given in op.inputs if given.dtype != tf.resource)


def _is_reading(op: Any) -> bool:
    """Whether an op leaves variables alone; one that calls others hands them on."""
    if op.type in _READING or any(True for _ in list_called(op)):
        return True
    return all(given.dtype != tf.resource for given in op.inputs)


def _adds_replicas(op: Any, replicas: int) -> bool:
    """Whether an op adds up a value of each replica, as strategies do where they meet.

    What is in no scope of a replica is the first one's.
    """
    if op.type != "AddN" or len(op.inputs) != replicas or replicas < 2:
        return False
    return {find_scope(given.op) or 0 for given in op.inputs} == set(range(replicas))


def _name_draws(op: Any) -> Iterator[str]:
    for one in (op, *list_inner(op)):
        caller = find_caller(one) if is_drawing(one.type) else None
        if caller is not None:
            yield name_line(caller)
