"""What a diagnosis comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from distbench.details import Compared
from distbench.verdict import Finding, Status, Worst


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What an evidence says.

    Attributes:
        status: `pass`, `fail`, `undecidable` or `vacuous`.
        findings: In causal order: the first is the one to fix.
        checked: Number of comparisons made.
        worst: The comparison nearest to or farthest beyond its bound.
        references: What each phase was compared with, by phase.
        message: Why it is undecidable or vacuous; a note where a later phase undoes a
            deviation.
        compared: Every comparison, in the order in which they were made.
        doubtful: The step that a look inside would tell more of; None where it would
            not, or was taken.
        of_own: Whether what replicas make of their own shards is taken for meant.
    """

    status: Status
    findings: tuple[Finding, ...] = ()
    checked: int = 0
    worst: Worst | None = None
    references: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    compared: tuple[Compared, ...] = ()
    doubtful: int | None = None
    of_own: bool = False
