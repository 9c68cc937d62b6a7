"""A check that has one run."""

from __future__ import annotations

import distbench
from distbench.verdict import Run


def check_one(target: str, **options: object) -> Run:
    """Check a target in the bounded tier on two replicas of a process."""
    verdict = distbench.check(target, "mirrored:2", tier="bounded", **options)
    (run,) = verdict.runs
    return run
