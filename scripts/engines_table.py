"""Check the same subjects with every engine, and compare the verdicts with `local`'s.

The nodes of Slurm and Ray are this machine's own, on loopback; what they need is said
in docs/engines.md:

    .venv/bin/python scripts/engines_table.py --json docs/measured/engines.json
    .venv/bin/python scripts/engines_table.py --page     # docs/engines-table.md from it
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from measured import (
    FOLDER,
    ROOT,
    describe_measured,
    describe_place,
    write_figures,
    write_paragraph,
)

from distbench.engine_names import ENGINES

FIGURES = FOLDER / "engines.json"
PAGE = ROOT / "docs" / "engines-table.md"
TARGETS = (
    "docs/examples/my_optimizer.py:make_clipped_sgd",
    "scenarios/optimizers/sgd.py:make_sgd",
)
CLUSTERS = ("mirrored:2", "mwms:2", "ps:2+1")
_TIMEOUT_S = 900.0


def check(engine: str, target: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """One check: its verdict, and how long the command took, in seconds."""
    clusters = [word for cluster in CLUSTERS for word in ("-c", cluster)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "verdict.json"
        where = ("--engine", engine, "--json", str(file))
        begin_s = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "distbench", "check", target, *clusters, *where],
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
        seconds = time.monotonic() - begin_s
        if not file.exists():
            raise SystemExit(f"{engine}, {target}: {done.stderr}")
        return {"seconds": seconds, "verdict": json.loads(file.read_text("utf-8"))}


def strip_verdict(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """What has to be alike: all but the environment and the seconds."""
    runs = [{k: v for k, v in run.items() if k != "seconds"} for run in verdict["runs"]]
    differs = ("environment", "seconds")
    return {**{k: v for k, v in verdict.items() if k not in differs}, "runs": runs}


def measure(engine: str) -> list[dict[str, Any]]:
    """All targets with one engine."""
    opened = nullcontext({}) if engine == "local" else open_nodes(engine)
    with opened as environment:
        return [
            {"engine": engine, "target": target, **check(engine, target, environment)}
            for target in TARGETS
        ]


def open_nodes(engine: str) -> Any:
    """This machine's own nodes of an engine."""
    sys.path.append(str(ROOT / "tests" / "engines"))
    nodes = importlib.import_module(f"{engine}_nodes")
    if lack := nodes.find_lack():
        raise SystemExit(f"{engine}: {lack}")
    return nodes.open_nodes()


def make_rows(checks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each run of each check."""
    local = {
        found["target"]: strip_verdict(found["verdict"])
        for found in checks
        if found["engine"] == "local"
    }
    return [
        {
            "engine": found["engine"],
            "scenario": run["scenario"],
            "tier": run["tier"],
            "status": run["status"],
            "findings": [finding["code"] for finding in run["findings"]],
            "seconds": run["seconds"],
            "besides": found["seconds"]
            - sum(each["seconds"] for each in found["verdict"]["runs"]),
            "alike": strip_verdict(found["verdict"]) == local[found["target"]],
        }
        for found in checks
        for run in found["verdict"]["runs"]
    ]


def make_page(document: Mapping[str, Any]) -> str:
    """The page that shows the rows."""
    rows = document["rows"]
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    cells = {(r["engine"], r["scenario"], r["tier"]): r for r in rows}
    body = []
    for scenario, tier in dict.fromkeys((r["scenario"], r["tier"]) for r in rows):
        found = [cells[engine, scenario, tier] for engine in engines]
        said = {
            ", ".join([row["status"], *dict.fromkeys(row["findings"])]) for row in found
        }
        seconds = " | ".join(f"{row['seconds']:.1f}" for row in found)
        body.append(f"| {scenario} | {tier} | {' / '.join(sorted(said))} | {seconds} |")
    besides = [
        max(row["besides"] for row in rows if row["engine"] == engine)
        for engine in engines
    ]
    different = sorted({row["engine"] for row in rows if not row["alike"]})
    lines = [
        "<!-- Written by scripts/engines_table.py from docs/measured. -->",
        "",
        "# Engines side by side",
        "",
        *write_paragraph(
            "The same checks with every [engine](engines.md). Slurm and Ray have three "
            "nodes, which are this machine's own, on 127.0.0.11 to 127.0.0.13: so the "
            "seconds say what an engine costs, and nothing of a network. In the first "
            "scenarios of a check each agent imports TensorFlow."
        ),
        *describe_measured(document),
        *write_paragraph(
            f"With {', '.join(different)} verdicts differ in more than environment and "
            "seconds."
            if different
            else "Everything in the verdicts but the environment and the seconds is "
            "the same with all of them."
        ),
        f"| scenario | tier | verdict | {' | '.join(f'{e}, s' for e in engines)} |",
        "|---|---|---|" + "---|" * len(engines),
        *body,
        "| besides: nodes, and the subject's kind | | | "
        + " | ".join(f"{seconds:.1f}" for seconds in besides)
        + " |",
    ]
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", type=Path, metavar="FILE", default=FIGURES)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args(arguments)
    if given.page:
        PAGE.write_text(make_page(json.loads(FIGURES.read_text("utf-8"))), "utf-8")
        return
    # All are held against it, so it runs whatever was asked for.
    engines = dict.fromkeys(("local", *given.engines))
    checks = [found for engine in engines for found in measure(engine)]
    rows = make_rows(checks)
    write_figures(given.json, {"place": describe_place(), "rows": rows})
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
