"""Tests of a suite as runs of a verdict, so that a history can keep both alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from distbench.verdict import (
    Run,
    Status,
    Verdict,
    Worst,
    combine_statuses,
    find_begin,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestOutcome:
    """How one test ended, and what its checks found.

    Attributes:
        id: pytest's node id.
        status: `pass`, `fail`, `error` or `skipped`, as far as pytest knows.
        seconds: Wall time of the test itself.
        message: Why it failed or was skipped, or what it was expected to.
        detail: The log of its failure.
        verdicts: Those of its checks.
    """

    __test__ = False  # its name begins as those of tests do

    id: str
    status: Status
    seconds: float
    message: str = ""
    detail: str = ""
    verdicts: tuple[Verdict, ...] = ()


def make_suite_verdict(outcomes: Sequence[TestOutcome], name: str) -> Verdict:
    """A verdict with one run for each test.

    The test decides, and not its checks: many tests plant a mistake that is to be
    found. Error / bound is that of the checks that passed, findings are those of a test
    that failed.
    """
    environment: dict[str, object] = {}
    for outcome in outcomes:
        for verdict in outcome.verdicts:
            environment.update(verdict.environment)
    return Verdict(
        target=name,
        runs=tuple(_make_run(outcome) for outcome in outcomes),
        environment=environment,
        begun=find_begin(v for outcome in outcomes for v in outcome.verdicts),
    )


def _make_run(outcome: TestOutcome) -> Run:
    file, _, test = outcome.id.partition("::")
    runs = [run for verdict in outcome.verdicts for run in verdict.runs]
    failed = outcome.status in (Status.FAIL, Status.ERROR)
    status = _judge(outcome, runs)
    reasons = [run.message for run in runs if run.status is status and run.message]
    return Run(
        scenario=test or file,
        cluster=runs[0].cluster if runs else "",
        path=runs[0].path if runs else "",
        tier="",
        status=status,
        seconds=outcome.seconds,
        checked=sum(run.checked for run in runs),
        worst=_find_worst(runs),
        findings=tuple(f for run in runs for f in run.findings) if failed else (),
        # A check knows why it came to no judgement; pytest only that it did not.
        message=reasons[0] if failed and reasons else outcome.message,
        detail=outcome.detail if failed else "",
        setup={"target": file, "test": outcome.id},
    )


def _judge(outcome: TestOutcome, runs: Sequence[Run]) -> Status:
    """A check that came to no judgement fails its test; it says so by its status."""
    if outcome.status is Status.FAIL and runs:
        seen = combine_statuses(run.status for run in runs)
        if seen is not Status.PASS:
            return seen
    return outcome.status


def _find_worst(runs: Sequence[Run]) -> Worst | None:
    passed = [
        run.worst
        for run in runs
        if run.status is Status.PASS
        and run.worst is not None
        and not math.isnan(run.worst.error_over_bound)
    ]
    return max(passed, key=lambda worst: worst.error_over_bound, default=None)
