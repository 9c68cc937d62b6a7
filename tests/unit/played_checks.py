"""Checks that are played: what they come to is decided beforehand."""

from __future__ import annotations

from collections.abc import Callable

from verdict_samples import make_verdict

from distbench.options import CheckOptions, Progress
from distbench.target import TargetRef
from distbench.verdict import Verdict

Played = Callable[[TargetRef, CheckOptions, Progress], Verdict]


def answer(*runs: object) -> Played:
    return lambda target, options, progress: make_verdict(*runs)  # type: ignore[arg-type]


def raise_(error: BaseException) -> Played:
    def check_target(target, options, progress) -> Verdict:
        raise error

    return check_target
