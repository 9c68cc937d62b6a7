"""What steps in flight left behind, and all that they may have left.

A coordinator schedules several steps and waits for them: a round. No order is promised
within it, so what it leaves is held against what one device comes to in many orders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from distbench.evidence import Tier
from distbench.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flight:
    """A run with steps in flight; in its traces a step number is that of a round.

    Attributes:
        tier: `exact` where every order gives the same bits on one device, else
            `bounded`. Each round starts from the state of one device.
        in_flight: Steps of a round.
        observed: The state after each round; its notes have `begun` and `ended`, of
            each step how many had ended when it began and when it ended itself, and
            `tries`, how often it was handed to a worker.
        starts: The state from which each round starts: `INITIAL` the first, what is
            under a round's number the one after it. Its notes have `torn`, the paths of
            the state that the update reads by one op, to write by another, `led`,
            those of what is changed by what it reads of that after it wrote it, and
            `sparse`, whether the optimizer gets sparse gradients.
        orders: The state after each round in an order of reads and updates that may
            have been; one where every order gives the same.
        lost: By place in a round, the state without this one step.
        again: By place in a round, the state with this one step applied twice.
        stale: The state after each round where each step adds what it made of the
            state that it found as it began; then those where one step found what there
            was later. Empty where no state is torn.
    """

    tier: Tier
    in_flight: int
    observed: Trace
    starts: Trace
    orders: tuple[Trace, ...]
    lost: Mapping[int, Trace] = field(default_factory=dict)
    again: Mapping[int, Trace] = field(default_factory=dict)
    stale: tuple[Trace, ...] = ()

    @property
    def staleness(self) -> tuple[int, ...]:
        """Of each step, how many others ended between its begin and its end."""
        return tuple(late - early for early, late in self.times)

    @property
    def times(self) -> tuple[tuple[int, int], ...]:
        """Of each step, how many had ended when it began, and when it ended."""
        notes = self.observed.notes
        begun, ended = (cast(list[int], notes[name]) for name in ("begun", "ended"))
        return tuple(zip(begun, ended, strict=True))

    @property
    def torn_paths(self) -> frozenset[str]:
        """Paths of the state that other steps may change amid an update."""
        return frozenset(cast(list[str], self.starts.notes.get("torn", ())))

    @property
    def led_paths(self) -> frozenset[str]:
        """Paths of what an update changes by torn state that it has read again."""
        return frozenset(cast(list[str], self.starts.notes.get("led", ())))

    @property
    def torn(self) -> frozenset[str]:
        """Roles of that state."""
        paths = self.torn_paths
        return frozenset(v.role for v in self.starts.variables if v.path in paths)

    @property
    def has_sparse(self) -> bool:
        """Whether the optimizer gets sparse gradients."""
        return bool(self.starts.notes.get("sparse", False))

    @property
    def repeated(self) -> tuple[int, ...]:
        """Steps that were handed to a worker more than once."""
        tries = cast(list[int], self.observed.notes["tries"])
        return tuple(step for step, count in enumerate(tries) if count > 1)
