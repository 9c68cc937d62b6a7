"""Where each value is made that a loss or a step is made of: a note of their trace."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from distbench.trace import Trace, TraceKey

INTERMEDIATES = "intermediates"
"""The note of a trace that has them: each is a value of the loss, by its name."""
_GIVEN = "given"


def name_given(number: int, variable: str) -> str:
    """The name of a gradient that a step takes of a variable, the first being 0."""
    return f"{_GIVEN}|{number}|{variable}"


def rename_given(name: str, paths: Mapping[str, str]) -> str:
    """The name of such a gradient, with another path of the variable; others as is."""
    kind, _, rest = name.partition("|")
    number, _, variable = rest.partition("|")
    if kind != _GIVEN or variable not in paths:
        return name
    return name_given(int(number), paths[variable])


def list_places(trace: Trace, step: int, variable: str) -> Iterator[TraceKey]:
    """Where the gradients are that a step takes of a variable, if all replicas do."""
    for number in itertools.count():
        name = name_given(number, variable)
        place = TraceKey(step=step, phase="loss", variable=name)
        if not trace.get_replicas(place):
            return
        yield place


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """An intermediate value of a step.

    Attributes:
        name: Its own; the same on one device if the same lines made it by an op of the
            same type.
        aliases: What it is called by the ops that take it: where its own op is another
            one on a cluster, as one that communicates is, these may be the same.
        op: Type of the op that made it.
        place: File and line of the program.
        line: What stands there.
        parents: Names of what the op took.
        is_loss: Whether it is differentiated.
        trains: Whether it is by a variable of the subject.
        moves: Paths of the variables that the step moves by it.
    """

    name: str
    aliases: tuple[str, ...]
    op: str
    place: str
    line: str
    parents: tuple[str, ...]
    is_loss: bool
    trains: bool
    moves: tuple[str, ...] = ()


def made_to_json(made: Iterable[Made]) -> list[Mapping[str, Any]]:
    """As the note of a trace."""
    return [asdict(one) for one in made]


def made_from_json(note: Iterable[Mapping[str, Any]]) -> list[Made]:
    """See `made_to_json`."""
    return [
        Made(
            **{
                **item,
                "aliases": tuple(item["aliases"]),
                "parents": tuple(item["parents"]),
                "moves": tuple(item["moves"]),
            }
        )
        for item in note
    ]
