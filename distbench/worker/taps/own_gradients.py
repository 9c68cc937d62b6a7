"""What the tapes of each replica gave, until an optimizer is called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distbench.worker.taps.reach import is_in_reach


class OwnGradients:
    """The gradients of a step by replica and variable, as far as it is traced."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], list[Any]] = {}
        self._claimed: set[tuple[int, str]] = set()
        self._ever_claimed: set[tuple[int, str]] = set()
        self._calls: dict[tuple[int, str], int] = {}
        self._every: dict[int, list[Any]] = {}
        self._times: dict[tuple[int, str], int] = {}

    def forget(self, replica: int) -> None:
        """Drop what was seen while another graph was traced."""
        self._every.pop(replica, None)
        for key in [key for key in self._seen if key[0] == replica]:
            del self._seen[key], self._times[key]
        for keys in (self._claimed, self._ever_claimed):
            keys -= {key for key in keys if key[0] == replica}

    def remember(
        self, replica: int, variable: str, gradient: Any, call: int, passes: int = 1
    ) -> None:
        """Keep a gradient that a tape gave.

        Args:
            replica: Whose tape.
            variable: Path of that by which it was taken.
            gradient: It.
            call: How many calls of optimizers were before.
            passes: How often a step computes it, as in a loop.
        """
        self._every.setdefault(replica, []).append(gradient)
        key = replica, variable
        self._calls[key] = call
        if key in self._claimed:
            # An update has taken the ones before; these are for the next.
            self._claimed.remove(key)
            self._seen[key], self._times[key] = [], 0
        self._seen.setdefault(key, []).append(gradient)
        self._times[key] = self._times.get(key, 0) + passes

    def recall(self, replica: int, variable: str) -> Any:
        """The gradient that a tape gave for a variable.

        None where none did, or several: under gradient accumulation, say, no single
        one is the replica's gradient. Nor is one told that a `tf.function` within the
        step computed: what it returns is another tensor. Asking claims them: what tapes
        give from then on is for another update.
        """
        key = replica, variable
        seen = self._seen.get(key, [])
        self._claimed.add(key)
        self._ever_claimed.add(key)
        return seen[0] if len(seen) == 1 and is_in_reach(seen[0]) else None

    def list_unclaimed(self, replica: int) -> Iterator[tuple[str, int]]:
        """Variables for which a tape gave any, and no optimizer took one.

        And how many calls of optimizers were before the last of them.
        """
        for key in self._seen:
            if key[0] == replica and key not in self._ever_claimed:
                yield key[1], self._calls[key]

    def list_all(self) -> Iterator[Any]:
        """Every gradient of the step, whatever became of it."""
        for gradients in self._every.values():
            yield from gradients

    def count(self) -> int:
        """How many gradients of one variable a step has, at most."""
        return max(self._times.values(), default=0)
