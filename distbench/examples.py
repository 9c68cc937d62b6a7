"""What is known of a run's examples: who got which, and which of them count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

_FULL = 0.75
"""Of the examples in padded batches fewer are as long as the longest of their batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """What an input pipeline gave, each example known by a digest of its content.

    Attributes:
        expected: By batch, what one device read.
        seen: By replica and batch, what the cluster read; by worker, where each trains
            by itself.
        is_whole: Whether all read to the end of the epoch.
        is_sure: Whether equal examples have equal digests, as far as can be seen. They
            need not where batches of several lengths are filled up by other values
            than 0.
        apart: Whether those who read train by themselves, as the workers of parameter
            servers do: then each may read an epoch of its own.
        counterparts: What one device read in the place of what it never read: one for
            each way in which that is found, the surest first; none if it read all.
        own_left_out: Whether the first steps come to the same with these.
    """

    expected: tuple[tuple[str, ...], ...]
    seen: tuple[tuple[tuple[str, ...], ...], ...]
    is_whole: bool
    is_sure: bool = True
    apart: bool = False
    counterparts: tuple[tuple[Counterpart, ...], ...] = ()
    own_left_out: bool = False

    @property
    def due(self) -> set[str]:
        """All that one device read."""
        return {e for batch in self.expected for e in batch}

    @property
    def read(self) -> set[str]:
        """All that the cluster read."""
        return {e for own in self.seen for batch in own for e in batch}

    @property
    def is_known(self) -> bool:
        """Whether it is known which examples are the same ones.

        Those of one device that the replicas have were told alike, whatever else.
        """
        return self.is_sure or self.read <= self.due


def are_filled_by_zeros(lengths: Iterable[Sequence[Mapping[str, Any]]]) -> bool:
    """Whether nothing else fills up examples, as far as can be seen.

    Other values would make equal examples of batches of other lengths differ.

    Args:
        lengths: By reader, of each array: `shapes` of its examples, how many there are
            (`count`), and how many of these no zeros fill up (`full`).
    """
    for arrays in zip(*lengths, strict=False):
        shapes = {tuple(shape) for one in arrays for shape in one["shapes"]}
        count, full = (sum(one[name] for one in arrays) for name in ("count", "full"))
        if len(shapes) > 1 and full > _FULL * count:
            return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counterpart:
    """Some examples of a reader, and in the same order those in their place.

    Attributes:
        reader: Its replica, or worker, by number.
        batches: How many batches the examples are of.
        asked: For how many examples of the reader one was looked for.
        seen: By the name of an array of a batch, what the reader read: [examples,
            columns], numbers or text.
        due: The same of one device.
    """

    reader: int
    batches: int
    asked: int
    seen: Mapping[str, npt.NDArray[Any]]
    due: Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Which examples count in the gradients of a step, where their places decide.

    Each by its number in the global batch.

    Attributes:
        step: The step.
        whole: Those that count in the gradient of the global batch on one device.
        shards: By replica, those that count in that of its shard alone.
        variable: Whose gradient alone this is about; empty where it is about all.
        by_place: Whether what each example adds to that gradient of the global batch
            follows from itself and from its place, and from no other example.
        given: Whether that is so where what the global batch exchanges is given, and of
            all gradients.
    """

    step: int
    whole: tuple[int, ...]
    shards: tuple[tuple[int, ...], ...]
    variable: str = ""
    by_place: bool = False
    given: bool = False

    @property
    def missed(self) -> tuple[int, ...]:
        """Those that count on one device and in no shard."""
        return tuple(sorted({*self.whole}.difference(*self.shards)))

    @property
    def added(self) -> tuple[int, ...]:
        """Those that count in a shard and not on one device."""
        return tuple(sorted(set().union(*self.shards) - {*self.whole}))
