"""What a traced step makes of a tensor, through the functions that it calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from distbench.worker.state.graphs import find_body
from distbench.worker.state.handles import find_outermost, is_assign

_SHAPES = ("Shape", "ShapeN", "Size", "Rank", "VariableShape", "ZerosLike", "OnesLike")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Made:
    """What is made of a tensor.

    Attributes:
        tensors: It and what is computed of it, by identity, also in functions.
        ops: What takes any of these; in the place of the call of a function, its ops.
        assigned: The scratch paper to which any of these is assigned.
    """

    tensors: dict[int, Any] = field(default_factory=dict)
    ops: list[Any] = field(default_factory=list)
    assigned: list[Any] = field(default_factory=list)

    def add(self, other: Made) -> None:
        """Add what is made inside of a function."""
        self.tensors.update(other.tensors)
        self.ops.extend(other.ops)
        self.assigned.extend(other.assigned)


class Follower:
    """Follows tensors to what is made of them.

    Args:
        scratch: What is assigned to be used in the same step: by identity of the handle
            that lies in no graph, what stands for it in the step.
        ends: Identities of tensors that are followed no further.
    """

    def __init__(self, scratch: Mapping[int, Any], ends: Collection[int]) -> None:
        self._find_assigned = cache(
            lambda op: scratch.get(id(find_outermost(op.inputs[0])))
        )
        self._ends = ends
        self._known: dict[int, Made] = {}

    def follow_all(self, handles: Collection[Any]) -> Made:
        """What is made of variables, also by way of scratch paper.

        Args:
            handles: What stands for them in the step.
        """
        made, waiting = Made(), list(handles)
        seen = set(map(id, waiting))
        for handle in waiting:  # which grows
            found = self._follow(handle)
            made.add(found)
            new = {id(one): one for one in found.assigned if id(one) not in seen}
            seen.update(new)
            waiting += new.values()
        return made

    def _follow(self, begun: Any) -> Made:
        """What is made of a tensor without any scratch paper that it is assigned to.

        A function makes the same of what it is given, wherever it is called.
        """
        if id(begun) in self._known:
            return self._known[id(begun)]
        made, waiting = Made(tensors={id(begun): begun}), [begun]
        for tensor in waiting:  # which grows
            if id(tensor) in self._ends:
                continue
            for op in tensor.consumers():
                given = self._take(op, tensor, made)
                new = {id(one): one for one in given if id(one) not in made.tensors}
                made.tensors.update(new)
                waiting += new.values()
        self._known[id(begun)] = made
        return made

    def _take(self, op: Any, tensor: Any, made: Made) -> list[Any]:
        """What an op gives that comes of a tensor; what it does is added."""
        assigns = is_assign(op)
        if op.type in _SHAPES or (assigns and op.inputs[0] is tensor):
            return []
        body = find_body(op)
        if body is not None:
            return self._enter(op, body, tensor, made)
        made.ops.append(op)
        if assigns:
            handle = self._find_assigned(op)
            made.assigned.extend([] if handle is None else [handle])
        return list(op.outputs)  # an assignment has none

    def _enter(self, op: Any, body: Any, tensor: Any, made: Made) -> list[Any]:
        """What comes out of a function of what stands there for a tensor."""
        inside = Made()
        for given, inner in zip(op.inputs, body.inputs, strict=True):
            if given is tensor:
                inside.add(self._follow(inner))
        made.add(inside)
        pairs = zip(op.outputs, body.outputs, strict=False)
        return [given for given, inner in pairs if id(inner) in inside.tensors]
