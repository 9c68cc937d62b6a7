"""How long tasks have taken, and what is left of their time."""

from __future__ import annotations

import time
from collections.abc import Callable

_LEAST_S = 0.1
"""What a job is given at least: one that comes too late is to say so itself."""


class Deadline:
    """One for all jobs that share it; it runs from now on.

    Args:
        timeout_s: How long they may take.
        patience: As many times as long they may take where tasks compute: of time in
            which they do, none counts until then. What hangs mostly stands still, and
            what is merely large, or has a busy machine, does not.
        clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        timeout_s: float,
        *,
        patience: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.given_s = timeout_s
        self._excused_s = 0.0
        self._most_s = timeout_s * patience
        self._clock = clock
        self._begin_s = self._excused_until_s = clock()

    @property
    def spent_s(self) -> float:
        """Seconds since it began."""
        return self._clock() - self._begin_s

    @property
    def allowed_s(self) -> float:
        """Seconds from its beginning to its end, as far as is known."""
        return min(self.given_s + self._excused_s, self._most_s)

    @property
    def left_s(self) -> float:
        """Seconds that the next job may take."""
        return max(_LEAST_S, self.allowed_s - self.spent_s)

    def excuse(self, since_s: float, until_s: float) -> None:
        """Tell of a stretch of time, by the clock, in which tasks computed.

        Stretches may overlap, as those of several groups do, if each ends later.
        """
        since_s = max(since_s, self._excused_until_s)
        if until_s > since_s:
            self._excused_s += until_s - since_s
            self._excused_until_s = until_s


class Turn:
    """What one job has of a deadline, which begins with the job.

    Args:
        deadline: That of the job, which it may share with others.
    """

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline
        self._left_s = deadline.left_s
        self._least_s = deadline.spent_s + _LEAST_S

    @property
    def rest_s(self) -> float:
        """Seconds until it ends; 0 or less if it has."""
        end_s = max(self._least_s, self.deadline.allowed_s)
        return end_s - self.deadline.spent_s

    def __str__(self) -> str:
        given_s = self.deadline.given_s
        given, left = f"{given_s:.4g} s", f"{_round(self._left_s)} s"
        if (excused_s := self.deadline.allowed_s - given_s) > 0:
            return f"{given}, besides {_round(excused_s)} s in which tasks computed"
        return given if left == given else f"{given}, of which {left} were left for it"


def _round(seconds: float) -> str:
    """To a tenth; of less than a second there are two digits."""
    return f"{round(seconds, 1):.4g}" if seconds >= 1 else f"{seconds:.2g}"
