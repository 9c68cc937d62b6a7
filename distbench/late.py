"""What the steps of a scenario leave as it is, and a later step changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Looks = Literal["", "told", "heeded"]
"""Whether one device looks for it: not at all, to tell of it, or to end the run there,
of which longer ones say more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """What changes late, and how many steps show it.

    Attributes:
        first: Steps in which something is first changed, where a scenario ends before
            them or with them, by each such variable, slot, counter or decision, as a
            message calls it. What nothing writes is none, nor what stands still in all
            steps that one device takes; nor is anything of steps for which the subject
            has no data.
        steps: How many are to be taken, so that something follows each of them, and
            what is done again is done again; 0 where nothing is late.
        ahead: Steps after all that one device took in which a comparison of the user's
            own turns, by what a message calls it.
    """

    first: Mapping[str, int] = field(default_factory=dict)
    steps: int = 0
    ahead: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        """What is first of it, and when."""
        name = min(self.first, key=lambda name: self.first[name])
        return f"{name} first changes in step {self.first[name]}"


class TooFewStepsError(Exception):
    """A run would end before something changes, or with it.

    Attributes:
        late: What does.
        seconds: How long it took to find that.
    """

    def __init__(self, late: Late, seconds: float) -> None:
        super().__init__(str(late))
        self.late = late
        self.seconds = seconds
