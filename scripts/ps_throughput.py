"""Measure steps per second under parameter servers: by hand, and observed.

For each number of workers and of steps in flight a cluster trains one program by two
loops in turn: one written by hand on TensorFlow alone, and that of the bench, which
reads a clock in the chief around every step. What is lost or applied again is counted.

    .venv/bin/python scripts/ps_throughput.py --json docs/measured/ps_throughput.json
    .venv/bin/python scripts/ps_throughput.py --page      # docs/throughput.md from it
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
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

import distbench

FIGURES = FOLDER / "ps_throughput.json"
PAGE = ROOT / "docs" / "throughput.md"
WORKERS = (1, 2, 4, 8)
IN_FLIGHT = (1, 4, 16, 64)
_STEPS = 512
"""Steps of each loop: in few or many rounds, as many as are in flight in each."""
_LEAST = 8
"""Rounds at least."""


def measure(workers: int, in_flight: int) -> dict[str, Any]:
    """One row."""
    spec = f"ps:{workers}+1"
    rounds = max(_LEAST, _STEPS // in_flight)
    # Imported where TensorFlow may be: in the chief.
    answers = distbench.run(
        _call_program,
        spec,
        args=(str(Path(__file__).parent), spec, in_flight, rounds),
        timeout_s=300,
    )
    found = answers["chief", 0]
    ratios = [
        observed / hand
        for hand, observed in zip(
            found["seconds"]["hand"], found["seconds"]["observed"], strict=True
        )
    ]
    return {
        "workers": workers,
        "in_flight": in_flight,
        "rounds": rounds,
        **{
            f"{name}_steps_per_s": in_flight / statistics.median(seconds)
            for name, seconds in found["seconds"].items()
        },
        "ratio": statistics.median(ratios),
        "quartiles": statistics.quantiles(ratios, n=4)[::2],
        "lost": found["lost"],
        "extra": found["extra"],
    }


def _call_program(folder: str, spec: str, in_flight: int, rounds: int) -> Any:
    import sys

    sys.path.insert(0, folder)
    from throughput_program import measure

    return measure(spec, in_flight, rounds)


def make_page(document: Mapping[str, Any]) -> str:
    """The page that shows the rows."""
    ratios = [row["ratio"] for row in document["rows"]]
    lines = [
        "<!-- Written by scripts/ps_throughput.py from docs/measured. -->",
        "",
        "# Throughput under parameter servers",
        "",
        *write_paragraph(
            "Steps per second of a program with a layer of 256 by 64, with one "
            "parameter server, by a loop written by hand on TensorFlow alone, and by "
            "that of the bench, whose chief reads a clock around every step. Both take "
            "the same rounds of as many steps as are in flight, in turn on one "
            "cluster; the ratio is that of their times, the median over the rounds "
            "with its quartiles. It may be below 1: the bench calls what was traced, "
            "and leaves the losses where they are, and the loop by hand does neither. "
            "Lost and extra updates are counted in a variable with a place for each "
            "step."
        ),
        *write_paragraph(
            f"Observing costs {statistics.median(ratios):.2f} times the loop by hand "
            f"(median of the rows), and {max(ratios):.2f} times at most."
        ),
        *describe_measured(document),
        "| workers | in flight | by hand, steps/s | observed, steps/s | ratio "
        "| lost | extra |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in document["rows"]:
        low, high = row["quartiles"]
        lines.append(
            f"| {row['workers']} | {row['in_flight']} | {row['hand_steps_per_s']:.0f} "
            f"| {row['observed_steps_per_s']:.0f} "
            f"| {row['ratio']:.2f} ({low:.2f} to {high:.2f}) "
            f"| {row['lost']} | {row['extra']} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS)
    parser.add_argument("--in-flight", type=int, nargs="+", default=IN_FLIGHT)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args(arguments)
    if given.page:
        PAGE.write_text(make_page(json.loads(FIGURES.read_text("utf-8"))), "utf-8")
        return
    rows = []
    for workers in given.workers:
        for in_flight in given.in_flight:
            rows.append(measure(workers, in_flight))
            print(json.dumps(rows[-1]), flush=True)
    if given.json is not None:
        write_figures(given.json, {"place": describe_place(), "rows": rows})


if __name__ == "__main__":
    main()
