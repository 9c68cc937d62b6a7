"""What two recorded runs have in common, place by place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from distbench.compare.arrays.likeness import Likeness, Status
from distbench.trace import INITIAL, STATE, TraceKey

_NONE: Likeness = Likeness(status="missing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One place of two traces.

    Attributes:
        key: Where, by the names of the first trace; `WHOLE` for all replicas together.
        how: `sum` or `mean` where the replicas' values were put together, else empty.
        likeness: What the two values have in common.
        lacks: The run that has no value here: `A`, `B` or neither.
        undone: Whether all that the step left is alike all the same.
    """

    key: TraceKey
    how: str = ""
    likeness: Likeness = _NONE
    lacks: str = ""
    undone: bool = False

    @property
    def status(self) -> Status:
        """Whether the values are equal, near or different, or one is missing."""
        return self.likeness.status

    @property
    def counts(self) -> bool:
        """Whether the two runs differ here, and in what they arrived at."""
        return self.status in ("different", "missing") and not self.undone


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDifference:
    """Two traces, compared.

    Attributes:
        places: In causal order.
        renamed: Paths of the second trace, by those of the first, that are others.
        left_out: Steps that one of the two did not record.
        drifting: By run, the first step and variable of which its replicas hold other
            values though they are meant to hold the same.
    """

    places: tuple[Place, ...]
    renamed: Mapping[str, str]
    left_out: tuple[int, ...]
    drifting: Mapping[str, TraceKey]

    @property
    def first(self) -> Place | None:
        """Where the runs first differ."""
        return next((place for place in self.places if place.counts), None)

    def count(self, status: Status) -> int:
        """How many places there are of a status."""
        return sum(place.status == status for place in self.places)


def may_lack(key: TraceKey) -> bool:
    """Whether it is no difference that one run has no value.

    Slots that the first step makes op by op have none before it, and nobody has to tell
    what a loop reports.
    """
    return key.step == INITIAL or (key.phase == "loss" and bool(key.variable))


def mark_undone(places: Sequence[Place]) -> list[Place]:
    """Mark what differs on the way of a step whose outcome is alike.

    A loss that is reported is an outcome, and one that is differentiated is not.
    """
    outcome = [place for place in places if place.key.phase in STATE]
    changed = any(place.key.step != INITIAL for place in outcome)
    if not changed or any(place.counts for place in outcome):
        return list(places)
    return [
        replace(place, undone=True)
        if place.counts and (place.key.phase != "loss" or not place.key.variable)
        else place
        for place in places
    ]
