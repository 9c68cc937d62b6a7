"""Intermediate values of a program of NumPy, on one device and on replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from distbench.evidence import Inside
from distbench.trace import WHOLE, Trace, TraceKey, Value
from distbench.trace.intermediates import INTERMEDIATES, Made, made_to_json

SIZES, EVEN = (5, 3), (4, 4)
ROWS = np.random.default_rng(3).normal(size=(sum(SIZES), 2)).astype(np.float32)

Exchange = Callable[[list[Any]], list[Any]]


@dataclass
class Program:
    """Ops one after the other; each computes what all replicas have of it.

    Attributes:
        sizes: Examples of each replica.
        made: The ops.
        whole: What one device has.
        alone: What one device has of each shard by itself.
        parts: What each replica has.
    """

    sizes: tuple[int, ...] = SIZES
    made: list[Made] = field(default_factory=list)
    whole: dict[str, Any] = field(default_factory=dict)
    alone: dict[str, list[Any]] = field(default_factory=dict)
    parts: dict[str, list[Any]] = field(default_factory=dict)

    def give(self, name: str = "rows") -> str:
        """The examples."""
        cuts = np.split(ROWS, np.cumsum(self.sizes)[:-1])
        return self._add(name, "Placeholder", (), ROWS, list(cuts), list(cuts))

    def read(self, name: str, whole: Any, part: Any) -> str:
        """A variable: what one device and all replicas have of it."""
        parts = [np.float32(part)] * len(self.sizes)
        alone = [np.float32(whole)] * len(self.sizes)
        return self._add(name, "ReadVariableOp", (), np.float32(whole), alone, parts)

    def compute(
        self,
        name: str,
        op: str,
        parents: Sequence[str],
        function: Callable[..., Any],
        *,
        replica: Callable[..., Any] | None = None,
    ) -> str:
        """What an op makes of others, and replicas by a function of their own."""
        own = replica or function
        whole = function(*(self.whole[p] for p in parents))
        alone = [function(*(self.alone[p][r] for p in parents)) for r in range(2)]
        parts = [own(*(self.parts[p][r] for p in parents)) for r in range(2)]
        return self._add(name, op, parents, whole, alone, parts)

    def exchange(self, name: str, parent: str, join: Exchange) -> str:
        """What replicas make together of a value that one device keeps."""
        joined = join(self.parts[parent])
        self.parts[name] = [np.asarray(value, np.float32) for value in joined]
        self.made.append(_make(name, "CollectiveReduceV2", [parent]))
        return name

    def end(self, *names: str, moves: Mapping[str, str] | None = None) -> Inside:
        """What was seen of it.

        Args:
            names: The values that are losses.
            moves: By what the step moves each variable.
        """
        moves = moves or {}
        self.made = [
            replace(
                one,
                is_loss=one.name in names,
                trains=one.name in names,
                moves=tuple(path for path, by in moves.items() if by == one.name),
            )
            for one in self.made
        ]
        known = [one for one in self.made if one.name in self.whole]
        reference = {
            **{_key(n, WHOLE): v for n, v in self.whole.items()},
            **{_key(n, r): v[r] for n, v in self.alone.items() for r in range(2)},
        }
        observed = {_key(n, r): v[r] for n, v in self.parts.items() for r in range(2)}
        return Inside(
            reference=_make_trace("reference", self.sizes, known, reference),
            observed=_make_trace("cluster", self.sizes, self.made, observed),
        )

    def _add(
        self,
        name: str,
        op: str,
        parents: Sequence[str],
        whole: Any,
        alone: list[Any],
        parts: list[Any],
    ) -> str:
        self.made.append(_make(name, op, parents))
        self.whole[name] = np.asarray(whole)
        self.alone[name] = list(map(np.asarray, alone))
        self.parts[name] = list(map(np.asarray, parts))
        return name


def _make(name: str, op: str, parents: Sequence[str]) -> Made:
    return Made(
        name=name,
        aliases=(),
        op=op,
        place=f"model.py:{name}",
        line=f"{name} = ...",
        parents=tuple(parents),
        is_loss=False,
        trains=False,
    )


def _key(name: str, replica: int) -> TraceKey:
    return TraceKey(step=0, phase="loss", variable=name, replica=replica)


def _make_trace(
    name: str,
    sizes: tuple[int, ...],
    made: Sequence[Made],
    values: Mapping[TraceKey, Value],
) -> Trace:
    return Trace(
        name=name,
        replicas=len(sizes),
        shards=sizes,
        variables=(),
        values=dict(values),
        notes={INTERMEDIATES: made_to_json(made)},
    )


def add_up(parts: Sequence[Any]) -> list[Any]:
    """What replicas have of a sum over all of them, each."""
    return [sum(parts)] * len(parts)


def share(values: Any) -> Any:
    """A replica's part of the mean over all examples."""
    return np.sum(values) / np.float32(len(ROWS))


def look(*, of_all: bool, has_common: bool = False) -> Inside:
    """What is seen of a loss that is a sum over examples, or one of the own largest.

    Args:
        of_all: Whether it is the sum.
        has_common: Whether there is another one that all replicas have alike.
    """
    program = Program()
    program.give()
    program.compute("squares", "Square", ["rows"], np.square)
    kept = ["squares"]
    if not of_all:
        kept.append(program.compute("most", "Max", ["squares"], np.max))

    def reduce(squares: np.ndarray, most: float = 1.0) -> np.ndarray:
        return np.sum(squares) / most / np.float32(len(ROWS))

    program.compute("loss", "Sum", kept, reduce)
    program.read("common", 2.0, 2.0)
    return program.end("loss", *["common"] * has_common)
