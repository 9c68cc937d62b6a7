"""Deviations that the caller means: `--expect CODE`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from distbench.checking.runs import add_note
from distbench.verdict import Run, Status


def apply_expectations(run: Run, expect: Iterable[str]) -> Run:
    """Let a run pass in which nothing but expected codes was found.

    The findings stay, so the report still shows what was measured. A failed run
    without any finding has no code that could be expected and stays failed.
    """
    found = {finding.code for finding in run.findings if not finding.warning}
    if run.status is not Status.FAIL or not found or not found <= set(expect):
        return run
    names = ", ".join(sorted(found))
    return add_note(replace(run, status=Status.PASS), f"as expected: {names}")
