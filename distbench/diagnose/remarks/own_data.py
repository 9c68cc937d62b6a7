"""Whether what replicas read follows from whose pipeline it came by.

A statistic or a vocabulary of the own shard, and a factor by the worker's number, make
other examples of the same records for each. One device then trains on others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from distbench.diagnose.remarks.own_laws import Law, find_factor, find_law
from distbench.examples import Counterpart, Examples

_BATCHES = 2
"""Of one alone it cannot be told whether its examples follow from the batch."""

Array = npt.NDArray[Any]

_RULES = ("linear", "renamed")
_KNOWN = ("same", "constant", *_RULES)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnData:
    """An array of a batch that each reader has by a rule of its own.

    Attributes:
        name: Its name.
        readers: Those who have another one than one device.
        law: The first one's rule.
        factors: By which it is multiplied for these; empty if that is not all.
    """

    name: str
    readers: tuple[int, ...]
    law: Law
    factors: tuple[float, ...]


def find_own_data(examples: Examples) -> tuple[OwnData, ...]:
    """The arrays that differ by a rule that is another one for some readers.

    All other arrays have to be known as well, or what is held against each other need
    not belong together. A rule that all readers have in common is no fault: weights of
    examples may count the replicas.
    """
    for way in () if examples.own_left_out else examples.counterparts:
        found = tuple(_find_by(way))
        if found:
            return found
    return ()


def are_known(examples: Examples) -> bool:
    """Whether one device has all that was held against it, but for what does not count.

    As where a function of a whole batch rounds otherwise than that of another one,
    other batches are padded to other lengths, or steps leave out what differs.
    """
    return examples.own_left_out or any(
        len(way) == len(examples.seen) and all(map(_is_known, way))
        for way in examples.counterparts
    )


def _is_known(one: Counterpart) -> bool:
    """Whether every example that was asked for its counterpart has an equal one."""
    found = max(map(len, one.due.values()))
    laws = _find_laws(one).values()
    return found == one.asked and all(law == "same" for law in laws)


def _find_laws(one: Counterpart) -> Mapping[str, Law]:
    found = {name: find_law(due, one.seen[name]) for name, due in one.due.items()}
    beside = [due for name, due in one.due.items() if found[name] == "same"]
    for name in [name for name, law in found.items() if law == "none"]:
        found[name] = find_law(one.due[name], one.seen[name], beside)
    return found


def _differ(readers: Sequence[Counterpart], name: str) -> bool:
    """Whether no rule for an array that holds for each of them is one for all."""
    joined = Counterpart(
        reader=-1,
        batches=sum(one.batches for one in readers),
        asked=sum(one.asked for one in readers),
        seen=_join([one.seen for one in readers]),
        due=_join([one.due for one in readers]),
    )
    return _find_laws(joined)[name] == "none"


def _join(parts: Sequence[Mapping[str, Array]]) -> Mapping[str, Array]:
    return {name: _stack([part[name] for part in parts]) for name in parts[0]}


def _stack(parts: Sequence[Array]) -> Array:
    """Arrays [examples, columns] one below the other, of which some have fewer columns.

    Examples of some readers may all be shorter; in both arrays they are filled alike.
    """
    full = [
        np.zeros((len(part), max(p.shape[1] for p in parts)), part.dtype)
        for part in parts
    ]
    for array, part in zip(full, parts, strict=True):
        array[:, : part.shape[1]] = part
    return np.concatenate(full)


def _find_by(way: Sequence[Counterpart]) -> Iterator[OwnData]:
    readers = [one for one in way if one.batches >= _BATCHES]
    laws = [_find_laws(one) for one in readers]
    known = [
        (one, found)
        for one, found in zip(readers, laws, strict=True)
        if all(law in _KNOWN for law in found.values())
    ]
    if len(known) < 2:
        return
    for name in known[0][1]:
        rules = [found[name] for _, found in known if found[name] in _RULES]
        own = [one for one, found in known if found[name] in _RULES]
        if not own or not _differ([one for one, _ in known], name):
            continue
        factors = [find_factor(one.due[name], one.seen[name]) for one in own]
        yield OwnData(
            name=name,
            readers=tuple(one.reader for one in own),
            law=rules[0],
            factors=tuple(f for f in factors if f) if all(factors) else (),
        )
