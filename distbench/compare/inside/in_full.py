"""What every replica has in full beside, or against, its own part of a sum.

What is the same on all of them has to count once. Added to each replica's part it
counts N times; and where each holds its own part against it, as under a floor, nobody
holds the sum against it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from distbench.compare.inside.nearness import Array
from distbench.compare.inside.paired import Paired

ADDING = frozenset({"Add", "AddN", "AddV2", "ConcatV2", "Pack", "Sub"})
"""Ops that put several terms together."""
_PLUS = frozenset({"Add", "AddV2", "Sub"})
_LIMITING = frozenset({"Maximum", "Minimum", "SquaredDifference"})
_BENDING = _LIMITING | {"Abs", "Relu", "Square"}
"""Ops that go another way on either side of a number, or of 0."""

InFull = Literal["", "examples", "variables", "numbers", "limit"]
Terms = Mapping[str, str | None]
"""For each value, the last multiple of it, if a loss is made of it as of a term."""


def find_full(graph: Paired, name: str, parts: Sequence[Array], terms: Terms) -> InFull:
    """What replicas have in full where a value is made: see `Astray`.

    Args:
        graph: The values of a step.
        name: One with which replicas go astray.
        parts: What each has there.
        terms: Which values are terms of a loss.
    """
    if _is_limited(graph, name, terms):
        return "limit"
    return _find_added(graph, name) or _find_numbers(graph, name, parts)


def _is_limited(graph: Paired, name: str, terms: Terms) -> bool:
    """Whether a term of the loss holds a replica's addend against what all have alike.

    A floor under a sum, or a hinge that it has to reach, is as high for all replicas
    together as for one device. An addend is less the more replicas there are: that is
    no statistic of the own examples, as a mean would be, and nobody means it.
    """
    made = graph.made[name]
    parents = {graph.relate(parent) for parent in graph.list_parents(name)}
    has_number = any(parent not in graph.made for parent in made.parents)
    if "sum" not in parents or not (
        parents == {"sum", "same"} or (has_number and parents == {"sum"})
    ):
        return False
    if made.op in _LIMITING:
        return terms[name] is not None
    return made.op in _PLUS and any(
        terms[child] is not None and _bends(graph, child, name)
        for child in graph.children[name]
    )


def _bends(graph: Paired, child: str, name: str) -> bool:
    """Whether a value is made of another one by what limits it, or by its square."""
    op, made, of = graph.made[child].op, graph.find(child), graph.find(name)
    if op != "Pow" or made is None or of is None:
        return op in _BENDING
    near = graph.make_near(child, *made)
    return near(made[0], of[0] ** 2)


def _find_added(graph: Paired, name: str) -> InFull:
    """Of what a term is made that a sum has on every replica, and not its share of."""
    if graph.made[name].op not in ADDING:
        return ""
    parents = {parent: graph.relate(parent) for parent in graph.list_parents(name)}
    full = [parent for parent, part in parents.items() if part == "same"]
    if not full or not {*parents.values()} & {"sum", "rows"}:
        return ""
    waiting, seen = list(full), set(full)
    while waiting:
        made = graph.made[waiting.pop()]
        if made.op == "Placeholder":
            return "examples"
        waiting += [p for p in made.parents if p in graph.made and p not in seen]
        seen.update(made.parents)
    return "variables"


def _find_numbers(graph: Paired, name: str, parts: Sequence[Array]) -> InFull:
    """Whether each adds a constant to its addend of a sum over all replicas."""
    made = graph.made[name]
    is_added = made.op in _PLUS and any(p not in graph.made for p in made.parents)
    related = {graph.relate(parent) for parent in graph.list_parents(name)}
    is_summed = is_added and related == {"sum"} and become(graph, name, parts, np.sum)
    return "numbers" if is_summed else ""


def become(
    graph: Paired, name: str, parts: Sequence[Array], join: Callable[..., Any]
) -> bool:
    """Whether replicas make of what they have what it comes to together."""
    if any(part.shape != parts[0].shape for part in parts):
        return False
    joined = np.asarray(join(parts, axis=0, dtype=np.float64))
    near = graph.make_near(name, joined, parts)
    if near(parts[0], joined):
        return False
    waiting, seen = [name], {name}
    while waiting:
        for child in graph.children[waiting.pop()]:
            if child in seen:
                continue
            seen.add(child)
            waiting.append(child)
            found = graph.list_parts(child)
            if found and all(near(part, joined) for part in found):
                return True
    return False
