"""Write docs/detection.md from a full selftest, which takes some 20 minutes.

With `--from FILE` from one that was run before: `distbench selftest --json FILE`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from distbench.faults import FAULTS, Fault
from distbench.selftest.matrix import COLUMNS, describe_result, score_to_json
from distbench.selftest.run import plan_selftest, run_selftest
from distbench.unusual import UNUSUAL

PAGE = Path(__file__).parents[1] / "docs" / "detection.md"
_PACKAGES = ("tensorflow", "tf-keras", "numpy")
_MEANING = {
    "detected": "the run fails (or passes with a warning, where one is due)",
    "code": "the first finding has the expected code",
    "phase": "it lies in the expected phase",
    "variable": "it names just the variables that the mistake concerns",
    "replicas": "it names just the replicas, where the mistake concerns some",
}


def make_page(document: Mapping[str, Any]) -> str:
    """The whole page of a selftest's JSON document."""
    versions = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in _PACKAGES)
    cells, passed = document["faults"], document["unusual"]
    lines = [
        "<!-- Written by scripts/write_detection.py from a full selftest. -->",
        "",
        "# What is detected",
        "",
        f"`distbench selftest` runs {len(FAULTS)} seeded faults and {len(UNUSUAL)} "
        "correct but unusual",
        "programs on real clusters and compares each diagnosis with what is expected. "
        "The faults",
        "are small mistakes in user code, each modelled on a real bug "
        "(`distbench/faults`); the",
        "correct programs do what is often taken for one (`distbench/unusual`).",
        "",
        f"Measured with {versions} on {platform.system()}, CPU devices.",
        "",
        *_make_shares(document),
        "",
        f"Correct programs that do not pass: {document['false_alarms']} of "
        f"{len(passed)} runs.",
        "",
        "## Faults",
        "",
        *_make_matrix(cells),
        "",
        *_list_misses(cells),
        "## Correct but unusual programs",
        "",
        *_make_passed(passed),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _make_shares(document: Mapping[str, Any]) -> Iterator[str]:
    cells = [cell for cell in document["faults"] if cell["status"] != "skipped"]
    yield "| | right | share | target | |"
    yield "|---|---|---|---|---|"
    for name in COLUMNS:
        right = sum(cell[name] for cell in cells)
        target = document["targets"].get(name)
        wanted = "" if target is None else f"{target:.0%}"
        share = document["shares"][name]
        yield (
            f"| {name} | {right} of {len(cells)} | {share:.1%} | {wanted} "
            f"| {_MEANING[name]} |"
        )


def _make_matrix(cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    clusters = list(dict.fromkeys(cell["cluster"] for cell in cells))
    yield f"| fault | code | like | {' | '.join(clusters)} |"
    yield "|---|---|---|" + "---|" * len(clusters)
    found = {(cell["fault"], cell["cluster"]): cell for cell in cells}
    for fault in FAULTS:
        row = [_mark(found.get((fault.name, cluster))) for cluster in clusters]
        if any(row):
            yield (
                f"| {_name_fault(fault)} | `{fault.code}` | {fault.like} "
                f"| {' | '.join(row)} |"
            )


def _name_fault(fault: Fault) -> str:
    return f"{fault.name}: {fault.summary}"


def _mark(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ""
    if cell["status"] == "skipped":
        return "–"
    wrong = [name for name in COLUMNS if not cell[name]]
    if "detected" in wrong:
        return "**missed**"
    return "ok" if not wrong else f"**{', '.join(wrong)}**"


def _list_misses(cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    wrong = [cell for cell in cells if _mark(cell) not in ("ok", "–")]
    if not wrong:
        return
    yield "What is missed or not named as expected:"
    yield ""
    for cell in wrong:
        found = "; ".join(cell["found"]) or "nothing"
        yield f"- {cell['fault']} on {cell['cluster']}: {found}"
    yield ""


def _make_passed(passed: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    clusters = list(dict.fromkeys(one["cluster"] for one in passed))
    yield f"| program | {' | '.join(clusters)} |"
    yield "|---|" + "---|" * len(clusters)
    found = {(one["program"], one["cluster"]): one["status"] for one in passed}
    for program in UNUSUAL:
        row = [found.get((program.name, cluster), "") for cluster in clusters]
        yield f"| {program.name}: {program.summary} | {' | '.join(row)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    if options.source:
        text = options.source.read_text("utf-8")
    else:
        score = run_selftest(
            plan_selftest(),
            lambda result, number, total: print(
                f"[{number}/{total}] {describe_result(result)}", flush=True
            ),
        )
        text = score_to_json(score)
    PAGE.write_text(make_page(json.loads(text)), encoding="utf-8")


if __name__ == "__main__":
    main()
