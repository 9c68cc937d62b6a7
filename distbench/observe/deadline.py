"""How long a scenario has taken, and what is left of its time."""

from __future__ import annotations

import time

_LEAST_S = 0.1
"""What a job is given at least: one that comes too late is to say so itself."""


class Deadline:
    """One for all jobs of a scenario together; it runs from now on.

    Args:
        timeout_s: How long they may take.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._begin_s = time.monotonic()

    @property
    def given_s(self) -> float:
        """Seconds that they may take together."""
        return self._timeout_s

    @property
    def spent_s(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._begin_s

    @property
    def left_s(self) -> float:
        """Seconds that the next job may take."""
        return max(_LEAST_S, self._timeout_s - self.spent_s)
