"""What is known of a run's examples: who got which, and which of them count."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """What an input pipeline gave, each example known by a digest of its content.

    Attributes:
        expected: By batch, what one device read.
        seen: By replica and batch, what the cluster read; by worker, where each trains
            by itself.
        is_whole: Whether all read to the end of the epoch.
        apart: Whether those who read train by themselves, as the workers of parameter
            servers do: then each may read an epoch of its own.
    """

    expected: tuple[tuple[str, ...], ...]
    seen: tuple[tuple[tuple[str, ...], ...], ...]
    is_whole: bool
    apart: bool = False


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
