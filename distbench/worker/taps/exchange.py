"""What of other replicas a replica differentiates: nothing, counts, or features.

Read off the traced step and not off calls of `tf.distribute`: a batch normalisation
that averages its moving statistics calls a collective before the gradient as well, and
its loss is made of the own examples alone. Nor is it an exchange to average what every
replica makes of the variables alone, as spectral normalisation does. What inner
functions and conditionals exchange is not seen: on CPUs TensorFlow refuses a collective
there.

What a step assigns to a variable and reads again is followed as well: replicas that
climb along the sum of their gradients differentiate something of each other. Where an
optimizer has made the update, it is none: a shard alone is given that of all replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import tensorflow as tf

from distbench.worker.state.variables import VariableTable
from distbench.worker.taps.backwards import (
    Backwards,
    Place,
    Writes,
    find_place,
    is_communicated,
    is_eager,
)
from distbench.worker.taps.seen import Seen

Exchange = Literal["", "data", "features"]
"""`data` follows from the examples alone, as a count does; `features` from what is
trained as well."""


def find_exchange(
    seen: Seen, table: VariableTable, *, after_gradients: bool = True
) -> Exchange:
    """What the losses of a traced step take of other replicas.

    Args:
        seen: What each replica was given, and what its tapes differentiated.
        table: The subject's variables.
        after_gradients: Whether to follow what the step makes of gradients.
    """
    trained = find_trained(table)
    reduced = {find_place(t) for tensors in seen.reduced.values() for t in tensors}
    if not after_gradients:
        reduced |= set(map(find_place, seen.list_results()))
    found = {
        _find_of_replica(replica, targets, seen.given, trained, reduced)
        for replica, targets in seen.list_differentiated().items()
    }
    kinds: tuple[Exchange, ...] = ("features", "data")
    return next((kind for kind in kinds if kind in found), "")


def list_shared_state(seen: Seen, table: VariableTable) -> tuple[str, ...]:
    """State that takes what the losses of a traced step take of all replicas.

    A moving mean of statistics by which all examples are normalised is such. One of the
    own statistics is none, though its copies are averaged: no loss is made of that.

    Args:
        seen: See `find_exchange`.
        table: The subject's variables: those of the model that are not trained.
    """
    reduced = {find_place(t) for tensors in seen.reduced.values() for t in tensors}
    found: dict[str, None] = {}
    for replica, targets in seen.list_differentiated().items():
        traced = [t for t in targets if not is_eager(t)]
        if not traced:
            continue
        own = {find_place(tensor) for tensor in seen.given[replica]}
        others = {find_place(t) for n in seen.given for t in seen.given[n]} - own
        ends = own | others | reduced
        flow = _Flow(trained=set(), ends=ends)
        flow.add(traced)
        led = flow.spread(own)
        joined = led & (flow.spread(others) | flow.collectives)
        found |= dict.fromkeys(_list_made(table, traced[0].graph, joined, ends))
    return tuple(found)


def find_trained(table: VariableTable) -> set[int]:
    """The variables that are trained, by identity of their handles."""
    return {
        id(component.handle)
        for variable in table.state
        if variable.info.role == "variable" and variable.info.trainable
        for component in variable.components
        if hasattr(component, "handle")
    }


def list_made_of(
    table: VariableTable, sources: Iterable[Any], ends: Iterable[Any]
) -> tuple[str, ...]:
    """State of the model, of what is not trained, that a traced step makes of tensors.

    By way of trained variables all is made of everything: that does not count.

    Args:
        table: The subject's variables.
        sources: The tensors.
        ends: Where not to look any further back, beside these.
    """
    traced = [source for source in sources if not is_eager(source)]
    wanted = {find_place(source) for source in traced}
    ended = wanted | {find_place(end) for end in ends}
    found: dict[str, None] = {}
    unread = frozenset(find_trained(table))
    for graph in {id(t.graph): t.graph for t in traced}.values():
        found |= dict.fromkeys(_list_made(table, graph, wanted, ended, unread))
    return tuple(found)


def _list_made(
    table: VariableTable,
    graph: Any,
    wanted: set[Place],
    ends: set[Place],
    unread: frozenset[int] = frozenset(),
) -> list[str]:
    """State of the model, of what is not trained, that a graph makes of some places."""
    writes = Writes(graph)
    written = {
        variable.info.path: writes.list_written(variable.components)
        for variable in table.state
        if variable.info.role == "variable" and not variable.info.trainable
    }
    # One walk for all: a large model has hundreds of them.
    flow = _Flow(trained=set(), ends=ends, unread=unread)
    flow.add([value for values in written.values() for value in values])
    made = wanted | flow.spread(wanted)
    return [
        path
        for path, values in written.items()
        if any(find_place(value) in made for value in values)
    ]


def is_made_of(
    tensors: Iterable[Any],
    sources: Iterable[Any],
    *,
    ends: Iterable[Any] = (),
    unread: frozenset[int] = frozenset(),
) -> bool:
    """Whether a traced step computes any of some tensors of any of others.

    Args:
        tensors: Some tensors.
        sources: The others.
        ends: Where not to look any further back, beside these.
        unread: Variables of which not to follow what is assigned; see `find_trained`.
    """
    found, wanted = list(tensors), {find_place(source) for source in sources}
    ended = wanted | {find_place(end) for end in ends}
    flow = _Flow(trained=set(), ends=ended, unread=unread)
    flow.add(found)
    return bool(flow.spread(wanted)) or any(find_place(t) in wanted for t in found)


def _find_of_replica(
    replica: int,
    targets: Iterable[Any],
    given: Mapping[int, list[Any]],
    trained: set[int],
    reduced: set[Place],
) -> Exchange:
    own = {find_place(tensor) for tensor in given[replica]}
    others = {find_place(t) for number in given for t in given[number]} - own
    flow = _Flow(trained=trained, ends=own | others | reduced)
    flow.add([t for t in targets if not is_eager(t)])
    learned = flow.spread(flow.learned, smoothly=True)
    led = flow.spread(own)
    # What other replicas alone have computed, where all are traced in one graph.
    foreign = (flow.spread(others) - led) | (flow.collectives & led)
    if learned & foreign:
        return "features"
    return "data" if foreign else ""


@dataclass(slots=True, kw_only=True)
class _Flow:
    """What some tensors are computed of, tensor by tensor.

    Attributes:
        trained: The variables that are trained, by identity of their handles.
        ends: Where not to look any further back.
        learned: Handles of trained variables among what was found.
        collectives: What collectives gave.
        unread: Variables, as in `trained`, of which not to follow what is assigned.
    """

    trained: set[int]
    ends: set[Place]
    learned: set[Place] = field(default_factory=set)
    collectives: set[Place] = field(default_factory=set)
    unread: frozenset[int] = frozenset()
    _used: dict[Place, list[Place]] = field(default_factory=dict)
    _rounded: set[Place] = field(default_factory=set)
    _backwards: Backwards = field(init=False)

    def __post_init__(self) -> None:
        self._backwards = Backwards(self.unread)

    def add(self, tensors: Iterable[Any]) -> None:
        """Follow tensors back to where they come from."""
        waiting = list(tensors)
        seen = {find_place(tensor) for tensor in waiting}
        while waiting:
            tensor = waiting.pop()
            place = find_place(tensor)
            if id(tensor) in self.trained:
                self.learned.add(place)
            if not (tensor.dtype.is_floating or tensor.dtype == tf.resource):
                self._rounded.add(place)
            if place in self.ends or is_eager(tensor):
                continue
            if is_communicated(tensor):
                self.collectives.add(place)
            for source in self._backwards.list_sources(tensor):
                self._used.setdefault(find_place(source), []).append(place)
                if find_place(source) not in seen:
                    seen.add(find_place(source))
                    waiting.append(source)

    def spread(self, start: Iterable[Place], *, smoothly: bool = False) -> set[Place]:
        """All that is computed of some places, these included.

        Args:
            start: The places.
            smoothly: Leave out what comes by way of whole numbers or conditions: how
                many scores are above a limit is a count, and no feature.
        """
        waiting = [place for place in start if place in self._used]
        found = set(waiting)
        while waiting:
            for place in self._used.get(waiting.pop(), ()):
                if place not in found and not (smoothly and place in self._rounded):
                    found.add(place)
                    waiting.append(place)
        return found
