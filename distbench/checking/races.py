"""Whose fault it is that steps in flight leave something else than one device does.

Whether a race shows, and how, is chance: of two steps that race for a variable either
may be lost, or be in it once more, or both in part. So an origin does not rest on what
subject and control happened to show in the same minute, but on two facts that repeat:
which state the ops of an update leave open to other steps, and what is wrong as well
where no other step is there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from distbench.checking.origin import Control, find_origins
from distbench.verdict import Finding

Fly = Callable[[], Sequence[Finding]]
"""Runs the same steps on one worker, where none is beside another."""

_STATE = ("variable", "slot")
"""What is wrong in one may come of the other."""


def find_race_origins(
    findings: Sequence[Finding],
    torn: Collection[str],
    control: Control,
    fly_alone: Fly,
    fly_control_alone: Fly,
) -> tuple[Finding, ...]:
    """Lay at the framework's door the races that its own rule is open to.

    Args:
        findings: Of the subject.
        torn: See `Control`; of the subject.
        control: What the stock optimizer showed, and what its ops leave open.
        fly_alone: The subject on one worker; asked only if a race is to be excluded.
        fly_control_alone: The control on one worker; asked only if something is wrong
            with the subject there.
    """
    shown = {_name(f) for of_tier in control.findings.values() for f in of_tier}
    shown |= {_name_role(role) for role in control.torn}
    # What the subject leaves open besides is its own doing.
    shown -= {_name_role(role) for role in set(torn) - control.torn}
    raced = [f for f in findings if _name(f) in shown]
    lasting = {_name(f) for f in fly_alone()} if raced else set()
    told = [f for f in raced if _name(f) not in lasting]
    if len(told) < len(raced):
        alike = find_origins(raced, fly_control_alone())
        told += [f for f in alike if _name(f) in lasting and f.origin == "framework"]
    names = {_name(f) for f in told}
    return tuple(
        replace(f, origin="framework") if _name(f) in names else f for f in findings
    )


def _name(finding: Finding) -> str:
    return _name_role(finding.phase)


def _name_role(role: str) -> str:
    return "state" if role in _STATE else role
