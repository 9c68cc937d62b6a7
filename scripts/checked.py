"""What the scripts that check many subjects keep of a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distbench.verdict import Run, Status, combine_statuses


def find_heaviest(runs: Sequence[Run]) -> tuple[Status, Run | None]:
    """What the tiers of a check come to, and the run that says so."""
    status = combine_statuses(run.status for run in runs)
    if runs and {run.status for run in runs} <= {Status.REFUSED, Status.SKIPPED}:
        status = runs[0].status
    return status, next((run for run in runs if run.status == status), None)


def list_findings(run: Run | None) -> list[dict[str, Any]]:
    """The findings of a run, as far as tables tell of them."""
    return [
        {
            "code": found.code,
            "phase": found.phase,
            "origin": found.origin,
            "variable": found.variable,
            "ratio": found.ratio,
            "explanation": found.explanation,
        }
        for found in (run.findings if run else ())
    ]
