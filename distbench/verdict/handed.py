"""A verdict that knows whether anybody has looked at it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from distbench.verdict import Verdict

_TELLING = ("status", "runs", "findings", "exit_code")
"""What says how a check ended; `assert verdict` asks for the first."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HandedVerdict(Verdict):
    """What a test is given: it passes whatever came out unless it looks.

    Attributes:
        asked: What was looked at, shared with what is made of the verdict.
    """

    asked: set[str] = field(default_factory=set, compare=False)

    def __getattribute__(self, name: str) -> Any:
        """Take down what is asked for."""
        if name in _TELLING:
            object.__getattribute__(self, "asked").add(name)
        return object.__getattribute__(self, name)


def hand_over(verdict: Verdict) -> HandedVerdict:
    """The same verdict, at which nobody has looked."""
    return HandedVerdict(**{f.name: getattr(verdict, f.name) for f in fields(Verdict)})
