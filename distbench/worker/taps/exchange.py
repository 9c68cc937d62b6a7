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

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import tensorflow as tf

from distbench.worker.state.variables import VariableTable
from distbench.worker.taps.seen import Seen

Exchange = Literal["", "data", "features"]
"""`data` follows from the examples alone, as a count does; `features` from what is
trained as well."""

_ASSIGN = re.compile(r"^Assign(Add|Sub)?VariableOp$")
_COLLECTIVE = re.compile(r"^(Collective(Reduce|Gather|Bcast|AllToAll)|Nccl)")

_Place = tuple[int, str]


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
    reduced = {_place(t) for tensors in seen.reduced.values() for t in tensors}
    if not after_gradients:
        reduced |= set(map(_place, seen.list_results()))
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
    reduced = {_place(t) for tensors in seen.reduced.values() for t in tensors}
    found: dict[str, None] = {}
    for replica, targets in seen.list_differentiated().items():
        traced = [t for t in targets if not _is_eager(t)]
        if not traced:
            continue
        own = {_place(tensor) for tensor in seen.given[replica]}
        others = {_place(t) for n in seen.given for t in seen.given[n]} - own
        ends = own | others | reduced
        flow = _Flow(trained=set(), ends=ends)
        flow.add(traced)
        led = flow.spread(own)
        joined = led & (flow.spread(others) | flow.collectives)
        writes = _Writes(traced[0].graph)
        for variable in table.state:
            if variable.info.role == "variable" and not variable.info.trainable:
                taken = _Flow(trained=set(), ends=ends)
                values = writes.list_written(variable.components)
                taken.add(values)
                if joined & (taken.places | {_place(value) for value in values}):
                    found[variable.info.path] = None
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
    traced = [source for source in sources if not _is_eager(source)]
    wanted = {_place(source) for source in traced}
    ended = wanted | {_place(end) for end in ends}
    found: dict[str, None] = {}
    for graph in {id(t.graph): t.graph for t in traced}.values():
        writes = _Writes(graph)
        written = {
            variable.info.path: writes.list_written(variable.components)
            for variable in table.state
            if variable.info.role == "variable" and not variable.info.trainable
        }
        # One walk for all: a large model has hundreds of them.
        flow = _Flow(trained=set(), ends=ended, unread=frozenset(find_trained(table)))
        flow.add([value for values in written.values() for value in values])
        made = wanted | flow.spread(wanted)
        for path, values in written.items():
            if any(_place(value) in made for value in values):
                found[path] = None
    return tuple(found)


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
    found, wanted = list(tensors), {_place(source) for source in sources}
    ended = wanted | {_place(end) for end in ends}
    flow = _Flow(trained=set(), ends=ended, unread=unread)
    flow.add(found)
    return bool(flow.spread(wanted)) or any(_place(t) in wanted for t in found)


def _find_of_replica(
    replica: int,
    targets: Iterable[Any],
    given: Mapping[int, list[Any]],
    trained: set[int],
    reduced: set[_Place],
) -> Exchange:
    own = {_place(tensor) for tensor in given[replica]}
    others = {_place(t) for number in given for t in given[number]} - own
    flow = _Flow(trained=trained, ends=own | others | reduced)
    flow.add([t for t in targets if not _is_eager(t)])
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
    ends: set[_Place]
    learned: set[_Place] = field(default_factory=set)
    collectives: set[_Place] = field(default_factory=set)
    unread: frozenset[int] = frozenset()
    _used: dict[_Place, list[_Place]] = field(default_factory=dict)
    _rounded: set[_Place] = field(default_factory=set)
    _captured: dict[int, dict[str, Any]] = field(default_factory=dict)
    _writes: dict[int, _Writes] = field(default_factory=dict)

    def add(self, tensors: Iterable[Any]) -> None:
        """Follow tensors back to where they come from."""
        waiting = list(tensors)
        seen = {_place(tensor) for tensor in waiting}
        while waiting:
            tensor = waiting.pop()
            place = _place(tensor)
            if id(tensor) in self.trained:
                self.learned.add(place)
            if not (tensor.dtype.is_floating or tensor.dtype == tf.resource):
                self._rounded.add(place)
            if place in self.ends or _is_eager(tensor):
                continue
            for source in self._list_sources(tensor):
                self._used.setdefault(_place(source), []).append(place)
                if _place(source) not in seen:
                    seen.add(_place(source))
                    waiting.append(source)

    @property
    def places(self) -> set[_Place]:
        """All that something else is computed of."""
        return set(self._used)

    def spread(self, start: Iterable[_Place], *, smoothly: bool = False) -> set[_Place]:
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

    def _list_sources(self, tensor: Any) -> list[Any]:
        op = tensor.op
        graph = op.graph
        captured = self._captured.get(id(graph))
        if captured is None:
            captured = {i.name: o for o, i in getattr(graph, "captures", ())}
            self._captured[id(graph)] = captured
        if tensor.name in captured:
            return [captured[tensor.name]]
        if op.type == "IdentityN":
            # What a function with a gradient of its own gave, beside its arguments.
            return [op.inputs[tensor.value_index]]
        joined = _find_joined(op)
        if joined is not None:
            self.collectives.add(_place(tensor))
            return [joined[tensor.value_index]]
        if _COLLECTIVE.match(op.type):
            self.collectives.add(_place(tensor))
        if id(graph) not in self._writes:
            self._writes[id(graph)] = _Writes(graph, self.unread)
        return [*op.inputs, *self._writes[id(graph)].list_read(op)]


class _Writes:
    """What a graph assigns to variables.

    Args:
        graph: The graph.
        unread: Variables of which `list_read` leaves out what is assigned, by identity
            of their handles.
    """

    def __init__(self, graph: Any, unread: Collection[int] = ()) -> None:
        self._captures = [(o, i.name) for o, i in getattr(graph, "captures", ())]
        self._unread = {name for o, name in self._captures if id(o) in unread}
        self._ops: dict[str, list[Any]] = {}
        self._order: dict[str, int] = {}
        for place, op in enumerate(graph.get_operations()):
            self._order[op.name] = place
            if _ASSIGN.match(op.type):
                self._ops.setdefault(op.inputs[0].name, []).append(op)

    def list_written(self, components: Iterable[Any]) -> list[Any]:
        """What is assigned to components of a variable."""
        handles = [getattr(component, "handle", None) for component in components]
        names = [n for o, n in self._captures if any(o is h for h in handles)]
        return [op.inputs[1] for name in names for op in self._ops.get(name, ())]

    def list_read(self, op: Any) -> list[Any]:
        """What was assigned to the variables that an op is given, before it ran.

        Ops that use the same variable run in the order in which they were made.
        """
        found = []
        for handle in op.inputs:
            if handle.name in self._unread:
                continue
            for write in reversed(self._ops.get(handle.name, ())):
                if self._order[write.name] < self._order[op.name]:
                    found.append(write.inputs[1])
                    if write.type == "AssignVariableOp":
                        break
        return found


def _find_joined(op: Any) -> list[Any] | None:
    """What a strategy joined to reduce it at once, where an op takes that apart."""
    if op.type != "SplitV" or not _COLLECTIVE.match(op.inputs[0].op.type):
        return None
    joint = op.inputs[0].op.inputs[0].op
    parts = list(joint.inputs)[:-1]
    is_joint = joint.type == "ConcatV2" and len(parts) == len(op.outputs)
    return parts if is_joint else None


def _is_eager(tensor: Any) -> bool:
    return not hasattr(tensor, "graph")


def _place(tensor: Any) -> _Place:
    """A tensor by its graph and name; what has neither, by itself."""
    if _is_eager(tensor):
        return id(tensor), ""
    return id(tensor.graph), tensor.name
