"""Runs by scenario and cluster: which status has which."""

from __future__ import annotations

from dataclasses import dataclass

from distbench.verdict import Run, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Scenarios against clusters.

    Attributes:
        clusters: Headings of the columns.
        rows: Scenario, without its cluster, and tier; then for each cluster its runs,
            each with its number from 1.
    """

    clusters: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[tuple[tuple[int, Run], ...], ...]], ...]


def make_matrix(verdict: Verdict) -> Matrix:
    """Sort the runs of a verdict into a matrix, in the order of their first."""
    clusters = tuple(dict.fromkeys(run.cluster for run in verdict.runs))
    rows: dict[tuple[str, str], dict[str, list[tuple[int, Run]]]] = {}
    for number, run in enumerate(verdict.runs, 1):
        end = f"-{run.cluster}" if run.cluster else ""  # a test has none
        scenario = run.scenario.replace(end, "", 1)
        cells = rows.setdefault((scenario, run.tier), {})
        cells.setdefault(run.cluster, []).append((number, run))
    return Matrix(
        clusters=clusters,
        rows=tuple(
            (scenario, tier, tuple(tuple(cells.get(name, ())) for name in clusters))
            for (scenario, tier), cells in rows.items()
        ),
    )
