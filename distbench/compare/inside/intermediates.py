"""Where in a program replicas first go another way than one device.

What is no part of one device's value may be put right later, as a largest score that is
subtracted and added again. So the way back from a wrong one leads through such values
alone, and begins where all that a value is made of is still right.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np

from distbench.compare.inside.given import find_factor, gradients_add_up, list_given
from distbench.compare.inside.in_full import ADDING, InFull, Terms, become, find_full
from distbench.compare.inside.micro_batches import Part
from distbench.compare.inside.nearness import Array
from distbench.compare.inside.paired import Paired
from distbench.evidence import Inside
from distbench.trace.drawing import is_drawing
from distbench.trace.dtypes import is_floating
from distbench.trace.intermediates import Made

_SCALING = frozenset(
    {"Cast", "ExpandDims", "Identity", "IdentityN", "Mean", "Mul", "Neg", "RealDiv"}
    | {"Reshape", "Squeeze", "StridedSlice", "Sum"}
)
"""Ops that make a multiple of a term, if all else that they take is alike on all."""
_DIVIDING = frozenset({"Div", "DivNoNan", "RealDiv"})
_MULTIPLYING = _DIVIDING | {"Mul"}

Joined = Literal["", "mean", "sum"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Astray:
    """A value with which replicas go astray.

    Attributes:
        made: Where it is made.
        whole: What one device has.
        parts: What each replica has.
        is_own: Whether each replica has what its own examples alone give.
        is_alike: Whether all replicas have the same.
        of_one: The replica whose examples alone give what all have, and others' not.
        of_share: Whether it is made of each replica's addend of a sum, as if that were
            the sum. A multiple of the addend is not.
        is_mean: Whether one device has the mean of theirs, by the number of examples.
        joined: Whether all replicas go on with the plain `mean` of what they have, or
            else with its `sum`; empty where they do not.
        term: Of a term of the loss, what all replicas add up to, times what one device
            has; None of what is no term, or one that is 0.
        of_cut: Whether it is a mean, of a term of the loss, of what is right in all
            micro-batches together alone: over what is in each of them.
        of_loss: Whether it lies on the way to the losses, and not behind them.
        in_full: Whether it adds to each replica's part what all have alike: `examples`
            if that is made of examples, else `variables`, or mere `numbers` if all of
            that is added up over the replicas; `limit` if it holds that part against
            it; empty where it does not.
    """

    made: Made
    whole: Array
    parts: tuple[Array, ...]
    is_own: bool
    is_alike: bool
    of_share: bool
    is_mean: bool
    joined: Joined
    term: float | None
    in_full: InFull = ""
    of_one: int | None = None
    of_cut: bool = False
    of_loss: bool = True

    @property
    def is_statistic(self) -> bool:
        """Whether replicas have of their own examples what one device has of all."""
        if self.of_cut:
            return True
        is_one = all(part.shape == self.whole.shape for part in self.parts)
        is_own = self.is_mean or (self.is_own and is_one)
        # Whole numbers by rows are where something is, and no statistic.
        is_one |= is_floating(self.whole.dtype)
        return not self.is_alike and (is_own or (self.of_share and is_one))


def find_astray(
    inside: Inside, step: int, moved: Collection[str] = (), *, sizes_count: bool = True
) -> tuple[Astray, ...]:
    """The values with which replicas go astray, in the order of the program.

    Args:
        inside: What was seen of the intermediate values.
        step: Of which step.
        moved: Paths of variables whose step to follow back in place of the losses.
        sizes_count: See `Paired`.

    Returns:
        Nothing where these are right on all replicas or nobody has looked.
    """
    graph = Paired(inside, step, sizes_count=sizes_count)
    terms = _find_terms(graph)
    found: dict[str, None] = {}
    is_after = moved and not _follows_from_losses(inside, step)
    # Keras multiplies a loss by 1/N, which one device leaves out.
    ends = [
        name
        for end in (graph.list_moving(moved) if is_after else graph.list_losses())
        for name in ([end] if graph.relate(end) else graph.list_parents(end))
    ]
    waiting = [name for name in dict.fromkeys(ends) if graph.is_astray(name)]
    seen = set(waiting)
    while waiting:
        name = waiting.pop()
        before = [p for p in graph.list_parents(name) if graph.is_astray(p)]
        if before and terms[name] is None and _is_undivided_sum(graph, name, before):
            before = []
        is_hidden = any(map(graph.is_infinite, graph.list_parents(name)))
        if not (before or is_hidden or graph.is_read(name)):
            found[name] = None
        for parent in before:
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    # A mean of the own examples that is a term of the loss may be meant, and averaged.
    drawn = _list_drawn(graph)
    found = {
        name: None for name in found if name not in drawn and not graph.is_rounded(name)
    }
    bent = [name for name in found if terms[name] is None]
    kept = set(bent or found)
    return tuple(
        replace(_describe(graph, name, terms), of_loss=not is_after)
        for name in graph.made
        if name in kept
    )


def _follows_from_losses(inside: Inside, step: int) -> bool:
    """Whether a step is wrong by several gradients that are not one device's either.

    A mean may be too near to be seen in its loss, and what else the gradients of a
    micro-step are made of is of other examples than on one device.
    """
    given = list(list_given(inside.observed, inside.reference, step))
    return bool(given) and find_factor(given) is None


def _is_undivided_sum(graph: Paired, name: str, before: Sequence[str]) -> bool:
    """Whether it is N times what one device has, and the sum of what replicas have.

    That may be a mean of theirs, and is right then: what nobody divides by N is the
    sum. Several values may be packed for it, and so be what each sum is made of.
    """
    whole, joined = cast(tuple[Array, list[Array]], graph.find(name))
    due = whole * np.float64(len(joined))
    near = graph.make_near(name, due, joined)
    if not all(near(part, due) for part in joined):
        return False
    addends = map(graph.list_parts, before)
    sums = (np.asarray(np.sum(parts, axis=0, dtype=np.float64)) for parts in addends)
    return any(near(summed, due) for summed in sums)


def _list_drawn(graph: Paired) -> set[str]:
    """What random numbers of its own lead a device to, or to which it draws them.

    Where replicas draw others than one device they are not astray by that; nor by how
    many they draw.
    """
    drawn = {
        name
        for name, made in graph.made.items()
        if is_drawing(made.op) and graph.relate(name) in ("none", None)
    }
    for name, made in graph.made.items():
        if drawn & {*made.parents}:
            drawn.add(name)
    sizes = {
        name
        for name in graph.made
        if (children := graph.children[name])
        and all(is_drawing(graph.made[child].op) for child in children)
    }
    return drawn | sizes


def starts_right(inside: Inside, step: int) -> bool:
    """Whether the first loss that a step differentiates is right.

    Where it is, statistics of the own examples have no part in it.
    """
    graph = Paired(inside, step)
    first = next((one.name for one in graph.made.values() if one.is_loss), None)
    return first is not None and not graph.is_astray(first)


def limits_addends(inside: Inside, step: int) -> bool:
    """Whether a loss is another one only by limits that are held against addends.

    Those are no statistic of the own examples, as a mean is, which may be meant.
    """
    found = find_astray(inside, step)
    return bool(found) and all(one.in_full == "limit" for one in found)


def losses_add_up(inside: Inside, step: int) -> bool:
    """Whether replicas have their parts of all losses that a step differentiates.

    Then what each makes of its own gradients, and would not make of their sum, is no
    loss's doing: it is done to the gradients. Beside them there may be losses that all
    have alike, as one of examples that are kept from earlier steps.
    """
    parts = _relate_losses(inside, step) - {"same"}
    add_up = bool(parts) and parts <= {"sum", "rows"}
    return add_up or gradients_add_up(inside, step)


def has_common_loss(inside: Inside, step: int) -> bool:
    """Whether a step differentiates a loss that replicas and one device have alike."""
    return "same" in _relate_losses(inside, step)


def _relate_losses(inside: Inside, step: int) -> set[Part | None]:
    graph = Paired(inside, step)
    return {graph.relate(name) for name in graph.list_losses()}


def _find_terms(graph: Paired) -> Terms:
    """For each value, the last multiple of it, if a loss is made of it as of a term."""
    found: dict[str, str | None] = {}
    for name in reversed(graph.made):
        children = [graph.made[child] for child in graph.children[name]]
        is_added = children and all(
            child.op in ADDING and found.get(child.name) is not None
            for child in children
        )
        found[name] = None
        if graph.made[name].is_loss or is_added:
            found[name] = name
        elif len(children) == 1 and _is_scaled(graph, children[0], name):
            found[name] = found.get(children[0].name)
    return found


def _is_scaled(graph: Paired, child: Made, name: str) -> bool:
    """Whether a product has a value once, beside what is alike on all replicas."""
    if child.op not in _SCALING:
        return False
    is_divisor = child.op == "RealDiv" and child.parents[-1:] == (name,)
    others = [p for p in child.parents if p in graph.made and p != name]
    is_alike = all(graph.relate(other) == "same" for other in others)
    return is_alike and child.parents.count(name) == 1 and not is_divisor


def _describe(graph: Paired, name: str, terms: Terms) -> Astray:
    """A value, with what is known of it."""
    whole, parts = cast(tuple[Array, list[Array]], graph.find(name))
    term = terms[name]
    near, alone = graph.make_near(name, whole, parts), graph.list_alone(name)
    pairs = list(zip(parts, alone, strict=True))
    is_own = all(own is not None and near(part, own) for part, own in pairs)
    ones = [
        replica
        for replica, own in enumerate(alone)
        if own is not None and all(near(part, own) for part in parts)
    ]
    return Astray(
        made=_find_placed(graph, name),
        whole=whole,
        parts=tuple(parts),
        is_own=is_own,
        is_alike=all(near(part, parts[0]) for part in parts),
        of_share=not _is_multiplied(graph, name)
        and any(
            graph.relate(p) == "sum" and not graph.is_cut(p)
            for p in graph.list_parents(name)
        ),
        is_mean=_is_mean(graph, name, whole, parts),
        joined=_find_joined(graph, name, parts),
        term=None if term is None else _measure_term(graph, term),
        in_full=find_full(graph, name, parts, terms),
        of_one=None if is_own or not ones else ones[0],
        of_cut=term is not None and _divides_cut(graph, name),
    )


def _divides_cut(graph: Paired, name: str) -> bool:
    """Whether it is a mean over what is in a micro-batch, of shards cut otherwise."""
    is_mean = graph.made[name].op in _DIVIDING | {"Mean"}
    return is_mean and any(map(graph.is_cut, graph.list_parents(name)))


def _is_multiplied(graph: Paired, name: str) -> bool:
    """Whether a value is another one times a number, or over it.

    That is linear: of addends it makes addends, and only the number can be wrong.
    """
    made = graph.made[name]
    computed = [parent in graph.made for parent in made.parents]
    is_linear = made.op in _MULTIPLYING and computed.count(True) == 1
    return is_linear and (made.op not in _DIVIDING or computed[0])


def _find_placed(graph: Paired, name: str) -> Made:
    """An op, or the first that takes what it made of which the line is known.

    What a strategy does for all of its replicas together has no line of theirs.
    """
    waiting, place = [name], 0
    while place < len(waiting):
        made = graph.made[waiting[place]]
        if made.place:
            return made
        waiting += [c for c in graph.children[made.name] if c not in waiting]
        place += 1
    return graph.made[name]


def _is_mean(graph: Paired, name: str, whole: Array, parts: Sequence[Array]) -> bool:
    """Whether one device has the mean of replicas' values, by their examples."""
    if any(part.shape != whole.shape for part in parts) or not sum(graph.sizes):
        return False
    wide = np.asarray(parts, np.float64)
    mean = np.average(wide, axis=0, weights=graph.sizes)
    return graph.make_near(name, whole, parts)(np.asarray(mean), whole)


def _find_joined(graph: Paired, name: str, parts: Sequence[Array]) -> Joined:
    """What something that is made of it is of all replicas' values."""
    if become(graph, name, parts, np.mean):
        return "mean"
    return "sum" if become(graph, name, parts, np.sum) else ""


def _measure_term(graph: Paired, name: str) -> float | None:
    """What all replicas add up to, times what one device has."""
    found = graph.find(name)
    if found is None or not np.any(found[0]):
        return None
    whole, parts = np.asarray(found[0], np.float64), found[1]
    if any(part.shape != whole.shape for part in parts):
        return None
    total = np.sum(parts, axis=0, dtype=np.float64)
    return float(np.vdot(total, whole) / np.vdot(whole, whole))
