"""The detection matrix as a table and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from distbench.selftest.score import TARGETS, Cell, Passed, Score

COLUMNS = ("detected", "code", "phase", "variable", "replicas")
SCHEMA = "distbench/selftest/1"


def render_score(score: Score) -> RenderableType:
    """Matrix, shares, and what went wrong."""
    parts: list[RenderableType] = []
    if score.faults:
        parts.append(_make_matrix(score))
        parts.append(Text())
        parts += _list_misses(score)
        for name, share in score.measure_shares().items():
            parts.append(Text(describe_share(name, share, score)))
    if score.unusual:
        parts.append(Text(describe_alarms(score)))
        parts += [
            Text(f"  {one.program} on {one.cluster}: {'; '.join(one.found)}")
            for one in score.false_alarms
        ]
    parts.append(Text("passed" if score.ok else "FAILED"))
    return Group(*parts)


def describe_share(name: str, share: float, score: Score) -> str:
    """One of the shares in words."""
    cells = [cell for cell in score.faults if not cell.skipped]
    right = sum(getattr(cell, name) for cell in cells)
    target = f", target {TARGETS[name]:.0%}" if name in TARGETS else ""
    title = name if name == "detected" else f"{name} right"
    return f"{title}: {right} of {len(cells)} ({share:.1%}{target})"


def describe_alarms(score: Score) -> str:
    """How many of the correct programs pass."""
    alarms = len(score.false_alarms)
    return f"correct programs that do not pass: {alarms} of {len(score.unusual)} runs"


def mark_cell(cell: Cell) -> str:
    """What a cell shows: `ok`, or what is wrong with it."""
    if cell.skipped:
        return "-"
    wrong = [name for name in COLUMNS if not getattr(cell, name)]
    return "ok" if not wrong else "missed" if "detected" in wrong else " ".join(wrong)


def score_to_json(score: Score) -> str:
    """All cells and shares as one document."""
    document = {
        "schema": SCHEMA,
        "ok": score.ok,
        "shares": score.measure_shares(),
        "targets": TARGETS,
        "false_alarms": len(score.false_alarms),
        "faults": [{**asdict(c), "status": c.status.value} for c in score.faults],
        "unusual": [{**asdict(p), "status": p.status.value} for p in score.unusual],
    }
    return json.dumps(document, indent=1, allow_nan=False)


def describe_result(result: Cell | Passed) -> str:
    """One line on what just ran."""
    if isinstance(result, Cell):
        return f"{result.fault} on {result.cluster}: {mark_cell(result)}"
    return f"{result.program} on {result.cluster}: {result.status}"


def _make_matrix(score: Score) -> Table:
    clusters = list(dict.fromkeys(cell.cluster for cell in score.faults))
    table = Table(box=None, title="fault x cluster", title_justify="left")
    for title in ("fault", *clusters):
        table.add_column(title, no_wrap=True)
    for name in dict.fromkeys(cell.fault for cell in score.faults):
        cells = {cell.cluster: cell for cell in score.faults if cell.fault == name}
        table.add_row(
            name, *(mark_cell(cells[c]) if c in cells else "" for c in clusters)
        )
    return table


def _list_misses(score: Score) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for cell in score.faults:
        if mark_cell(cell) not in ("ok", "-"):
            found = "; ".join(cell.found) or "nothing"
            lines.append(Text(f"{cell.fault} on {cell.cluster}: found {found}"))
            if cell.explanation:
                lines.append(Text(f"  {cell.explanation}", style="dim"))
    return lines
