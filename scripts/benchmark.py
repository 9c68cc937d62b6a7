"""Measure what the bench costs, side by side with what else there is, in one run.

Sides of a case take turns, so what slows the machine slows all of them, and what counts
is the ratio of one round's times. A case that has been measured with the installed
versions is not measured again unless `--only` names it.

    scripts/benchmark                      # all cases that are not measured yet
    scripts/benchmark --only 'fresh-*'     # these, again
    scripts/benchmark --page               # docs/performance.md from the figures alone
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence, Set
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmark_cases import CASES, Case
from benchmark_page import make_page
from measured import (
    FOLDER,
    ROOT,
    describe_installed,
    find_commit,
    find_done,
    keep_rows,
    read_document,
)

FIGURES = FOLDER / "benchmark.json"
PAGE = ROOT / "docs" / "performance.md"


def choose_cases(only: Sequence[str], done: Set[tuple[str, ...]]) -> list[Case]:
    """The cases that a pattern names, or those that have no row."""
    if only:
        return [c for c in CASES if any(fnmatchcase(c.name, one) for one in only)]
    return [case for case in CASES if (case.name,) not in done]


def measure(case: Case, rounds: int | None) -> dict[str, Any]:
    """One row: every sample of every side, in the order of the rounds."""
    begin = time.perf_counter()
    samples = case.measure(rounds or case.rounds)
    return {
        "case": case.name,
        "distbench": find_commit(),
        "samples": {
            side: [float(f"{one:.4g}") for one in taken]
            for side, taken in samples.items()
        },
        "seconds": round(time.perf_counter() - begin, 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="PATTERN")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--json", type=Path, default=FIGURES, metavar="FILE")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args(arguments)
    if given.list:
        print("\n".join(f"{case.name:12} {case.title}" for case in CASES))
        return
    if given.page and given.json != FIGURES:
        parser.error(f"--page is written from {FIGURES} alone.")
    for one in given.only:
        if not choose_cases([one], set()):
            names = ", ".join(case.name for case in CASES)
            parser.error(f"--only: no case fits {one!r}. There are {names}.")
    if not given.page:
        place = describe_installed()
        for case in choose_cases(given.only, find_done(given.json, place, ("case",))):
            row = measure(case, given.rounds)
            print(json.dumps(row), flush=True)
            # After each one: what is interrupted goes on where it was.
            keep_rows(given.json, [row], place, ("case",))
    if given.json == FIGURES:
        PAGE.write_text(make_page(read_document(FIGURES)), "utf-8")


if __name__ == "__main__":
    main()
