"""Intermediate values: what losses and steps are made of, from the examples on.

They tell where in a program replicas begin to go another way than one device, and are
looked at in a run of their own: they are many, and each takes a sink.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import tensorflow as tf

from distbench.trace.intermediates import Made
from distbench.worker.process.sources import is_of, is_of_caller
from distbench.worker.taps.backwards import Backwards, is_eager
from distbench.worker.taps.callers import name_line

_MOST = 10_000
"""Of a loss of more values it alone is looked at: each takes a sink, and they tell
where it begins to be wrong only if none is left out."""
_LARGEST = 1 << 22
"""A value with more numbers is not kept."""

_DISTRIBUTE = "/tensorflow/python/distribute/"
"""Where the code of strategies lies, which runs a step on each replica."""

_STEP = "step"
"""Stands where names have the number of a loss."""

_SCOPE = re.compile(r"(?:^|/)replica_(\d+)/")
"""The scope of names in which a strategy traces a replica that is not the first one."""

Keep = Callable[[str, Any], None]


class Intermediates:
    """What was found of the losses of a traced step.

    Args:
        devices: Those of this task's replicas, in their order.
        of_steps: Whether to look also at what moves variables.

    Attributes:
        made: Where each value is made, in the order in which they are, whether it is a
            number that can be kept or only leads to one.
    """

    def __init__(self, devices: Sequence[str] = (), *, of_steps: bool = False) -> None:
        self._devices = [_find_place(name) for name in devices]
        self.of_steps = of_steps
        self.made: dict[str, Made] = {}

    def look_at(
        self, target: Any, number: int, local: int, keep: Keep, *, trains: bool
    ) -> None:
        """Keep what a loss is computed of.

        Args:
            target: The loss, in the graph that is traced.
            number: Which of those that the replica differentiates.
            local: Number of the replica in this task.
            keep: Told the name and the tensor of each value.
            trains: Whether by a variable of the subject.
        """
        traced = [t for t in tf.nest.flatten(target) if not is_eager(t)]

        def tell(tensor: Any) -> Mapping[str, Any]:
            is_loss = any(tensor is target for target in traced)
            return {"is_loss": is_loss, "trains": trains}

        self._look_at_all(traced, str(number), local, keep, tell)

    def look_at_step(
        self, moving: Mapping[str, Sequence[Any]], local: int, keep: Keep
    ) -> None:
        """Keep what a step moves variables by, and what that is computed of.

        Args:
            moving: What moves a variable, by its path: sums of gradients, and what is
                assigned, in the graph that is traced.
            local: Number of the replica in this task.
            keep: Told the name and the tensor of each value.
        """

        def tell(tensor: Any) -> Mapping[str, Any]:
            paths = (p for p, made in moving.items() if any(t is tensor for t in made))
            return {"is_loss": False, "trains": False, "moves": tuple(paths)}

        targets = [tensor for found in moving.values() for tensor in found]
        self._look_at_all(targets, _STEP, local, keep, tell)

    def rename(self, paths: Mapping[str, str]) -> None:
        """Call variables that are moved by other paths."""
        self.made = {
            name: replace(made, moves=tuple(paths.get(p, p) for p in made.moves))
            for name, made in self.made.items()
        }

    def _look_at_all(
        self,
        traced: Sequence[Any],
        number: str,
        local: int,
        keep: Keep,
        tell: Callable[[Any], Mapping[str, Any]],
    ) -> None:
        if not traced:
            return
        found = _find_sources(traced, cache(partial(self._is_of_replica, local)))
        names = _name_tensors(found, number)
        # Another replica of this task has the same names.
        if len({*self.made, *names.values()}) > _MOST:
            found = [_Found(one, one.op.type, []) for one in traced]
        aliases: dict[str, list[str]] = {}
        for one in found:
            for slot, source in enumerate(one.sources):
                alias = f"{names[one.tensor.name]}<{slot}"
                aliases.setdefault(source.name, []).append(alias)
        for one in found:
            tensor = one.tensor
            if tensor.op.type == "Const":
                continue
            name = names[tensor.name]
            if name not in self.made:
                self.made[name] = Made(
                    name=name,
                    aliases=tuple(aliases.get(tensor.name, ())),
                    op=one.op,
                    **_tell_place(tensor.op),
                    parents=tuple(
                        names[source.name]
                        for source in one.sources
                        if source.name in names
                    ),
                    **tell(tensor),
                )
            if _can_be_kept(tensor):
                keep(name, tensor)

    def _is_of_replica(self, local: int, op: Any) -> bool | None:
        """Whether a replica of this task has an op; None of what is given to it or any.

        All are traced in one graph: those that are not the first one in a scope of
        names. What is outside of it is the first one's, or what a strategy does on the
        devices of others, where they meet.
        """
        if len(self._devices) < 2:
            return True
        if op.type == "Placeholder":
            takers = {_find_taker(taker) for taker in op.outputs[0].consumers()}
            # What a strategy takes where replicas meet is given to any of them.
            return None if local in takers or takers <= {None} else False
        scope = find_scope(op)
        if scope is not None:
            return scope == local
        return local == 0 or _find_place(op.device) == self._devices[local]


def find_scope(op: Any) -> int | None:
    """The replica in whose scope an op is; None of the first one's, and outside."""
    scope = _SCOPE.search(op.name)
    return None if scope is None else int(scope[1])


def _find_taker(op: Any) -> int | None:
    """The replica that has an op in its step; None of what a strategy does for all."""
    scope = find_scope(op)
    if scope is not None:
        return scope
    return 0 if _list_own_frames(op) else None


@dataclass(frozen=True, slots=True)
class _Found:
    """A tensor on the way to a loss: by which op, and what it is computed of.

    What is captured from outside of the graph is a placeholder there as an input is.
    """

    tensor: Any
    op: str
    sources: list[Any]


def _find_sources(
    targets: Sequence[Any], is_own: Callable[[Any], bool | None]
) -> list[_Found]:
    """What some tensors of a graph are computed of, in the order of the graph.

    What others compute is left out, and followed to what it is made of in turn.

    Args:
        targets: The tensors.
        is_own: Whether an op is one of those to look at; None if that depends on who
            takes what it makes.
    """
    graph, backwards = targets[0].graph, Backwards()
    found: dict[str, _Found] = {}
    foreign: set[str] = set()
    waiting = [(target, True) for target in targets]
    while waiting:
        tensor, is_taken = waiting.pop()
        own = is_own(tensor.op)
        own = is_taken if own is None else own
        if tensor.name in found or (not own and tensor.name in foreign):
            continue
        sources = [
            source
            for source in backwards.list_sources(tensor)
            if not is_eager(source) and source.graph is graph
        ]
        waiting += [(source, own) for source in sources]
        if own:
            kind = "Captured" if backwards.is_captured(tensor) else tensor.op.type
            found[tensor.name] = _Found(tensor, kind, sources)
        else:
            foreign.add(tensor.name)
    order = {op.name: place for place, op in enumerate(graph.get_operations())}
    return sorted(
        found.values(),
        key=lambda one: (order[one.tensor.op.name], one.tensor.value_index),
    )


def _name_tensors(found: Sequence[_Found], number: str) -> dict[str, str]:
    """Names that the same program gives its tensors, whatever graph they are in.

    By the lines that made an op, which are the same on one device: its type, and its
    number among those of the same lines. What a strategy does for all of its replicas
    together has no line, and is not as much on each of them: it goes by what takes it.
    """
    numbers: dict[tuple[str, str], dict[str, int]] = {}
    takers: dict[str, tuple[str, int]] = {}
    names: dict[str, str] = {}
    lineless = []
    for one in found:
        for slot, source in enumerate(one.sources):
            takers.setdefault(source.name, (one.tensor.name, slot))
        op = one.tensor.op
        lines = ">".join(name_line(frame) for frame in _list_own_frames(op))
        alike = numbers.setdefault((lines, op.type), {})
        count = alike.setdefault(op.name, len(alike) + 1)
        place = one.tensor.value_index
        names[one.tensor.name] = f"{number}|{lines}|{op.type}|{count}:{place}"
        if not (lines or op.type == "Placeholder"):
            lineless.append(one.tensor.name)
    # What takes a tensor comes behind it.
    for name in reversed(lineless):
        if name in takers:
            taker, slot = takers[name]
            names[name] = f"{names[taker]}<{slot}"
    return names


def _list_own_frames(op: Any) -> list[Any]:
    """Calls on the way to an op, outside of TensorFlow, the bench and Python itself.

    Those of a replica's step alone: a cluster traces it in threads, where whoever had
    the strategy run it, as Keras' training loop does, is on no stack.
    """
    frames = list(op.traceback)
    runs = [n for n, frame in enumerate(frames) if _DISTRIBUTE in frame.filename]
    return [
        frame
        for frame in frames[runs[0] if runs else 0 :]
        if not is_of(frame.filename, "tensorflow") and not is_of_caller(frame.filename)
    ]


def _find_own_frame(op: Any) -> Any:
    """The line to name: the innermost of the user's, else that of a Keras layer."""
    frames = _list_own_frames(op)
    own = [f for f in frames if not is_of(f.filename, "keras", "tf_keras")]
    return next(reversed(own or frames), None)


def _tell_place(op: Any) -> dict[str, Any]:
    """Where it is made: file and number of the line, and what stands there."""
    frame = _find_own_frame(op)
    if frame is None:
        return {"place": "", "line": ""}
    line = linecache.getline(frame.filename, frame.lineno).strip()
    return {"place": name_line(frame), "line": line}


def _can_be_kept(tensor: Any) -> bool:
    is_number = tensor.dtype.is_floating or tensor.dtype.is_integer
    count = tensor.shape.num_elements()
    return is_number and (count is None or count <= _LARGEST)


def _find_place(device: str) -> tuple[Any, Any, Any]:
    """What tells one device from another."""
    spec = tf.DeviceSpec.from_string(device or "")
    return spec.task, spec.device_type, spec.device_index
