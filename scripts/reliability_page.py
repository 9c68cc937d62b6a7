"""Writes docs/reliability.md from the figures of scripts/reliability."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from measured import (
    ROOT,
    count_commits,
    describe_measured,
    read_document,
    write_paragraph,
)

PAGE = ROOT / "docs" / "reliability.md"
_SHOWN = 230
_HEAD = """\
<!-- Written by scripts/reliability. -->

# What happens when something breaks

Each row is a fault that was injected into real runs: how often, how many of the runs
ended as they have to (the first task that failed is named, with what it did), how long
they went on after the fault (after the exception, where a task raises one), and what
was left behind when they had ended: processes, files in TMPDIR, shared memory, ports. A
*deadline* is the run's own; the seconds are those after it. The workers of the runs are
three, under `MultiWorkerMirroredStrategy`.
"""
_HEADER = (
    "| fault | how | runs | right | seconds, median (worst) | what was said | left |",
    "|---|---|---|---|---|---|---|",
)


def write_page(figures: Path) -> None:
    """Write the page."""
    document = read_document(figures)
    PAGE.write_text("\n".join(make_lines(document)) + "\n", encoding="utf-8")


def make_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The lines of the page."""
    yield from _HEAD.splitlines()
    yield ""
    rows = document["rows"]
    yield from describe_measured(document)
    yield from write_paragraph(f"{len(rows)} runs: {count_commits(rows)}.")
    yield from _HEADER
    for case in dict.fromkeys(row["case"] for row in rows):
        yield _make_row([row for row in rows if row["case"] == case])
    runs, left = len(rows), sum(bool(row["left"]) for row in rows)
    right = sum(row["right"] for row in rows)
    yield ""
    yield f"{right} of {runs} runs ended as they have to; {left} left something behind."


def _make_row(rows: Sequence[Mapping[str, Any]]) -> str:
    first = rows[0]
    right = sum(row["right"] for row in rows)
    seconds = [row["seconds"] for row in rows]
    took = f"{statistics.median(seconds):.1f} ({max(seconds):.1f})"
    if first["kind"] == "deadline":
        took += " after the deadline"
    elif not first["kind"]:
        took = "–"
    left = Counter(row["left"] for row in rows if row["left"])
    cells = [
        first["case"],
        first["how"],
        str(len(rows)),
        str(right),
        took,
        _tell_counts(rows) or _quote(first["status"], first["said"]),
        "; ".join(f"{n} × {name}" for name, n in left.items()) or "nothing",
    ]
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _tell_counts(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the runs of a case counted, together; empty for one that counts nothing."""
    counts = sum((Counter(row.get("counts", {})) for row in rows), Counter())
    # A Counter leaves out what adds up to nothing.
    names = dict.fromkeys(name for row in rows for name in row.get("counts", {}))
    return ", ".join(f"{counts[name]} {name}" for name in names)


def _quote(status: str, said: str) -> str:
    words = " ".join(said.replace("`", "'").split())
    words = words if len(words) <= _SHOWN else f"{words[:_SHOWN]} ..."
    return f"{status}: `{words}`" if words else status
