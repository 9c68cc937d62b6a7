"""Intermediate values of replicas, each beside one device's.

It is their part of that if it is the same, if all of theirs add up to it, or if they
are its rows, one replica's after the other's; or if so it is in all micro-batches of a
step together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np

from distbench.compare.inside.given import adds_up, find_factor, list_given
from distbench.compare.inside.micro_batches import Part, find_place, relate_all
from distbench.compare.inside.nearness import Array, Near, find_lost, make_near
from distbench.evidence import Inside
from distbench.trace import WHOLE, Trace, TraceKey
from distbench.trace.dtypes import has_bytes
from distbench.trace.intermediates import (
    INTERMEDIATES,
    Made,
    made_from_json,
)

_READS = ("ReadVariableOp", "ResourceGather")
"""Ops that read what earlier updates of the step have left."""
_GIVEN = frozenset({*_READS, "Captured", "Placeholder"})
"""Ops that have what is handed to them, and make nothing."""
_SIZES = frozenset({"Shape", "ShapeN", "Size"})
"""Ops that tell how much there is of something, and nothing else of it."""
_JOINING = frozenset({"Add", "AddN", "AddV2", "Identity"})
"""Ops that make of addends an addend."""


class Paired:
    """The intermediate values of a step.

    Args:
        inside: What was seen of them.
        step: Which step.
        sizes_count: Whether replicas may go astray by several whole numbers that follow
            from shapes alone, as by the number that each example has in its shard.

    Attributes:
        made: Where each is made, by its name, in the order of the program: what others
            are made of comes before them.
        children: Names of what is made of each.
    """

    def __init__(self, inside: Inside, step: int, *, sizes_count: bool = True) -> None:
        self._sizes_count = sizes_count
        self._reference, self._observed = inside.reference, inside.observed
        self._step = step
        self.made = {one.name: one for one in _list_made(inside.observed)}
        self.children: dict[str, list[str]] = {name: [] for name in self.made}
        for name, one in self.made.items():
            for parent in filter(self.made.__contains__, one.parents):
                self.children[parent].append(name)
        self._known: dict[str, str] = {}
        for one in _list_made(inside.reference):
            for alias in (one.name, *one.aliases):
                self._known.setdefault(alias, one.name)
        self._parts: dict[str, Part | None] = {}
        self._of_places: dict[str, Part] = {}
        self._cut: set[str] = set()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Examples of each replica."""
        return self._reference.get_shards(self._step)

    def list_losses(self) -> list[str]:
        """What is differentiated by variables; if nothing is, by what is made of them.

        As where weights are moved up the slope first.
        """
        losses = [one for one in self.made.values() if one.is_loss]
        trained = [one for one in losses if one.trains]
        return [one.name for one in trained or losses]

    def list_moving(self, moved: Collection[str]) -> list[str]:
        """What the step moves some variables by: sums, and what it assigns."""
        return [n for n, one in self.made.items() if not {*moved}.isdisjoint(one.moves)]

    def is_astray(self, name: str) -> bool:
        """Whether replicas have no part of what one device has there.

        How many examples something is of is another number on each, and no mistake:
        what becomes of them says whether it is taken for one.
        """
        return self.relate(name) == "none" and name not in self._counts

    def is_read(self, name: str) -> bool:
        """Whether a value may be what an earlier update of the step has left.

        It is read from a variable, or made of something that is, which one device has
        not: a lookup of rows is another op there.
        """
        return name in self._read_ones

    def is_rounded(self, name: str) -> bool:
        """Whether a value is off by no more than its own dtype, a narrow one, rounds.

        What it is made of is right, and may have been rounded another way.
        """
        found = self.find(name)
        if found is None or has_bytes(found[1][0].dtype):
            return False
        return self._tell(*found, lost=find_lost(found[1][0].dtype)) != "none"

    def is_infinite(self, name: str) -> bool:
        """Whether one device has a value that is not finite.

        That is no measure for replicas, and hides what is wrong before it.
        """
        return self.relate(name) is None and self.find(name) is not None

    def list_parents(self, name: str) -> tuple[str, ...]:
        """The nearest values before one that one device has as well."""
        return self._parents[name]

    def relate(self, name: str) -> Part | None:
        """Which part of one device's value replicas have.

        None where one device has no such value, or one that is not finite.
        """
        if name not in self._parts:
            found = self.find(name)
            told = None if found is None else self._tell(*found, self._lost[name])
            if told == "none":
                told = "sum" if name in self._addends else self._relate_cut(name)
            self._parts[name] = told
        return self._parts[name]

    def is_cut(self, name: str) -> bool:
        """Whether replicas have their part in all micro-batches together alone."""
        self.relate(name)
        return name in self._cut

    def find_all(self, name: str) -> tuple[list[Array], list[list[Array]]]:
        """What one device and each replica have at a place in all micro-batches."""
        place, known = find_place(name), find_place(self._pair(name))
        replicas = range(self._observed.replicas)

        def read(trace: Trace, names: Sequence[str], replica: int) -> list[Array]:
            found = (self._read(trace, each, replica) for each in names)
            return [value for value in found if value is not None]

        wholes = read(self._reference, self._places[1].get(known, ()), WHOLE)
        names = self._places[0].get(place, ())
        return wholes, [read(self._observed, names, r) for r in replicas]

    def find(self, name: str) -> tuple[Array, list[Array]] | None:
        """What one device has and what each replica has; None where one has nothing."""
        known = self._pair(name)
        whole = self._read(self._reference, known, WHOLE) if known else None
        parts = self.list_parts(name)
        return None if whole is None or not parts else (whole, parts)

    def list_parts(self, name: str) -> list[Array]:
        """What each replica has; empty where one has nothing."""
        replicas = range(self._observed.replicas)
        found = [self._read(self._observed, name, r) for r in replicas]
        parts = [part for part in found if part is not None]
        return parts if len(parts) == len(found) else []

    def list_alone(self, name: str) -> list[Array | None]:
        """What one device has of each shard by itself."""
        known, replicas = self._pair(name), range(self._observed.replicas)
        return [self._read(self._reference, known, r) for r in replicas]

    def make_near(self, name: str, whole: Array, parts: Sequence[Array]) -> Near:
        """Says of two values at a place whether they are equal but for rounding."""
        return make_near(self._lost[name], whole, parts)

    @cached_property
    def _lost(self) -> Mapping[str, float]:
        """Share of a value that rounding may be: that of all that it is made of.

        A dtype that NumPy lacks rounds what is alike to what is alike, and counts as a
        wider one: see `is_rounded` for where it did not.
        """
        lost: dict[str, float] = {}
        for name, made in self.made.items():
            parts = self.list_parts(name)
            own = find_lost(parts[0].dtype) if parts else 0.0
            if parts and not has_bytes(parts[0].dtype):
                own = find_lost(np.dtype(np.float32))
            lost[name] = max([own, *(lost.get(p, 0.0) for p in made.parents)])
        return lost

    @cached_property
    def _counts(self) -> frozenset[str]:
        """Whole numbers that are made of shapes alone, one at a time if these count."""
        found: set[str] = set()
        for name, made in self.made.items():
            parents = [p for p in made.parents if p in self.made]
            is_size = made.op in _SIZES and not self._sizes_count
            if (
                made.op not in _GIVEN
                and (is_size or found.issuperset(parents))
                and all(map(self._may_be_count, self.list_parts(name)))
            ):
                found.add(name)
        return frozenset(found)

    def _may_be_count(self, value: Array) -> bool:
        is_one = value.size == 1 or not self._sizes_count
        return is_one and np.issubdtype(value.dtype, np.integer)

    @cached_property
    def _addends(self) -> frozenset[str]:
        """Gradients of micro-steps, or sums of some, that all add up to one device's.

        A replica's micro-step has other examples than one device's has: they are alike
        in all of them together. A multiple of all is no less an addend.
        """
        given = list(list_given(self._observed, self._reference, self._step))
        factor = find_factor(given) or 1.0
        told = [one for each in given if adds_up(each, factor) for one in each]
        shapes = {whole.shape for whole, _ in told}
        found: set[str] = set()
        for name, made in self.made.items():
            parents = [p for p in made.parents if p in self.made]
            if made.op in _JOINING and parents and found.issuperset(parents):
                found.add(name)
                continue
            seen = self.find(name) if shapes else None
            if (
                seen is not None
                and seen[0].shape in shapes
                and any(_are_equal(seen, one) for one in told)
            ):
                found.add(name)
        return frozenset(found)

    @cached_property
    def _parents(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for name, made in self.made.items():
            nearest: dict[str, None] = {}
            for parent in made.parents:
                is_lacking = parent in found and self.relate(parent) is None
                if is_lacking and not self.is_infinite(parent):
                    nearest.update(dict.fromkeys(found[parent]))
                elif parent in self.made:
                    nearest[parent] = None
            found[name] = tuple(nearest)
        return found

    @cached_property
    def _read_ones(self) -> frozenset[str]:
        found: set[str] = set()
        for name, made in self.made.items():
            unknown = (p for p in made.parents if p in found)
            if made.op in _READS or any(self.relate(p) is None for p in unknown):
                found.add(name)
        return frozenset(found)

    @cached_property
    def _places(self) -> tuple[Mapping[str, Sequence[str]], ...]:
        """Names by where their values are made: on the cluster, and on one device."""
        known = dict.fromkeys(self._known.values())
        return _group_by_place(self.made), _group_by_place(known)

    def _relate_cut(self, name: str) -> Part:
        """Which part replicas have in all micro-batches together."""
        place = find_place(name)
        if not place or len(self._places[0][place]) < 2:
            return "none"
        if place not in self._of_places:
            told = relate_all(*self.find_all(name), self._lost[name])
            self._of_places[place] = told
        if self._of_places[place] != "none":
            self._cut.add(name)
        return self._of_places[place]

    def _tell(self, whole: Array, parts: Sequence[Array], lost: float) -> Part | None:
        if not np.all(np.isfinite(whole)):
            return None
        near = make_near(lost, whole, parts)
        if all(near(part, whole) for part in parts):
            return "same"
        same = all(part.shape == whole.shape for part in parts)
        total = np.asarray(np.sum(parts, axis=0, dtype=np.float64)) if same else whole
        if same and near(total, whole):
            return "sum"
        is_rows = any(near(joined, whole) for joined in join_rows(whole, parts))
        return "rows" if is_rows else "none"

    def _pair(self, name: str) -> str:
        """What one device calls a value; empty where it has none."""
        aliases = (name, *self.made[name].aliases)
        return next((self._known[a] for a in aliases if a in self._known), "")

    def _read(self, trace: Trace, name: str, replica: int) -> Array | None:
        value = trace.get(
            TraceKey(step=self._step, phase="loss", variable=name, replica=replica)
        )
        # Such values are never sparse, and their dtype says how they may round.
        return value if isinstance(value, np.ndarray) else None


def _group_by_place(names: Iterable[str]) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        if place := find_place(name):
            found.setdefault(place, []).append(name)
    return found


def _are_equal(
    one: tuple[Array, Sequence[Array]], other: tuple[Array, Sequence[Array]]
) -> bool:
    """Whether one device has the same twice, and each replica has."""
    pairs = zip((one[0], *one[1]), (other[0], *other[1]), strict=True)
    return all(np.array_equal(left, right) for left, right in pairs)


def _list_made(trace: Trace) -> list[Made]:
    return made_from_json(cast(Any, trace.notes.get(INTERMEDIATES, ())))


def join_rows(whole: Array, parts: Sequence[Array]) -> Iterator[Array]:
    """The parts one after the other, along each axis along which that has the size."""
    for axis in range(whole.ndim):
        shapes = {(*p.shape[:axis], *p.shape[axis + 1 :]) for p in parts}
        if shapes != {(*whole.shape[:axis], *whole.shape[axis + 1 :])}:
            continue
        # Those of another rank may have the same shape without the axis.
        same = all(part.ndim == whole.ndim for part in parts)
        if same and sum(part.shape[axis] for part in parts) == whole.shape[axis]:
            yield np.concatenate(parts, axis)
