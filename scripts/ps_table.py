"""Check stock optimizers under parameter servers: by partitioner, and mode.

One step at a time (workload `linear`, tier bounded), and with steps in flight
(`counting`; the tier follows from the rule). A run that was cut off goes on:

    .venv/bin/python scripts/ps_table.py --json docs/measured/ps_table.json
    .venv/bin/python scripts/ps_table.py --page          # docs/ps-table.md from it
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measured import (
    FOLDER,
    ROOT,
    count_commits,
    describe_installed,
    describe_measured,
    find_commit,
    find_done,
    keep_rows,
    name_row,
    write_paragraph,
)

import distbench
from distbench.verdict import Verdict

FIGURES = FOLDER / "ps_table.json"
PAGE = ROOT / "docs" / "ps-table.md"
OPTIMIZERS = Path(__file__).with_name("ps_table_optimizers.py")
PARTITIONERS = ("", "fixed:2", "min:8:2", "max:8")
MODES = {"lock-step": 1, "in flight": 8}
NAMES = ("optimizer", "partitioner", "mode")
"""What names a cell."""
_CLUSTER = "ps:2+2"
_WORKLOADS = {"lock-step": ("linear", "bounded"), "in flight": ("counting", None)}


def list_optimizers() -> list[str]:
    """The rows, read from the source: TensorFlow is for tasks."""
    tree = ast.parse(OPTIMIZERS.read_text("utf-8"))
    (table,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict)
    )
    return [ast.literal_eval(key) for key in table.keys if key is not None]


def check(optimizer: str, partitioner: str, mode: str) -> Verdict:
    """The verdict of one cell."""
    workload, tier = _WORKLOADS[mode]
    return distbench.check(
        f"{OPTIMIZERS}:{optimizer}",
        _CLUSTER,
        workload=workload,
        tier=tier,
        partitioner=partitioner or None,
        in_flight=MODES[mode],
        steps=3,
        timeout_s=300,
    )


def measure(optimizer: str, partitioner: str, mode: str) -> dict[str, Any]:
    """One cell."""
    verdict = check(optimizer, partitioner, mode)
    # One that is not compared has a run for each tier that it could have had.
    run = verdict.runs[0]
    return {
        "optimizer": optimizer,
        "partitioner": partitioner,
        "mode": mode,
        "tier": run.tier,
        "status": str(run.status),
        "checked": run.checked,
        "findings": sorted({f"{f.code} ({f.origin})" for f in run.findings}),
        "message": run.message if str(run.status) != "pass" else "",
        "most_stale": max(run.staleness, default=0),
        "distbench": find_commit(),
    }


def make_page(document: Mapping[str, Any]) -> str:
    """The page that shows the cells."""
    rows = document["rows"]
    cells = {name_row(row, NAMES): row for row in rows}
    columns = [
        (p, m)
        for m in MODES
        for p in PARTITIONERS
        if any(c[1:] == (p, m) for c in cells)
    ]
    notes: list[str] = []
    body = []
    for optimizer in dict.fromkeys(row["optimizer"] for row in rows):
        found = [cells.get((optimizer, *column)) for column in columns]
        shown = " | ".join(_describe(row, notes) for row in found)
        name = optimizer.replace("_", " ")
        body.append(f"| {name} | {shown} |")
    count = {s: sum(r["status"] == s for r in rows) for s in _list_statuses(rows)}
    lines = [
        "<!-- Written by scripts/ps_table.py from docs/measured. -->",
        "",
        "# Optimizers under parameter servers",
        "",
        *write_paragraph(
            f"Stock optimizers on {_CLUSTER}, by partitioner: one step at a time "
            "(`linear`, every phase of three steps against one device), and with "
            f"{MODES['in flight']} in flight (`counting`, what three rounds leave "
            "against all that they may leave). Behind a verdict in flight is its tier: "
            "exact where no order of the steps matters, else the envelope of "
            "interleavings. A number is that of a note below. Whether and how a race "
            "shows is chance; its origin is not."
        ),
        *describe_measured(document),
        *write_paragraph(
            f"{len(rows)} checks ({count_commits(rows)}): "
            + ", ".join(f"{number} {status}" for status, number in count.items())
            + "."
        ),
        "| optimizer | "
        + " | ".join(f"{m}, {p or 'whole'}" for p, m in columns)
        + " |",
        "|---|" + "---|" * len(columns),
        *body,
        "",
        *(f"{place}. {note}" for place, note in enumerate(notes, 1)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _list_statuses(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["status"] for row in rows))


def _describe(row: Mapping[str, Any] | None, notes: list[str]) -> str:
    if row is None:
        return ""
    text = str(row["status"])
    if row["mode"] == "in flight" and row["checked"]:
        text += f", {row['tier']}"
    note = ", ".join(row["findings"]) or row["message"].partition(";")[0]
    if not note:
        return text
    if note not in notes:
        notes.append(note)
    return f"{text} {notes.index(note) + 1}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Check what is missing and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", type=Path, metavar="FILE", default=FIGURES)
    parser.add_argument("--optimizers", nargs="+", default=list_optimizers())
    parser.add_argument("--partitioners", nargs="+", default=PARTITIONERS)
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args(arguments)
    if given.page:
        PAGE.write_text(make_page(json.loads(FIGURES.read_text("utf-8"))), "utf-8")
        return
    place = describe_installed()
    done = find_done(given.json, place, NAMES)
    for cell in (
        (optimizer, partitioner, mode)
        for partitioner in given.partitioners
        for optimizer in given.optimizers
        for mode in MODES
    ):
        if cell not in done:
            row = measure(*cell)
            print(json.dumps(row), flush=True)
            keep_rows(given.json, [row], place, NAMES)


if __name__ == "__main__":
    main()
