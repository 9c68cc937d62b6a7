"""Run the selftest's samples on this machine's GPUs for some minutes.

They are taken in an order that a seed draws, those first that were not right before,
then those that no earlier run had; several at a time, since a GPU has room for many
small models. With one GPU, replicas share it (`DISTBENCH_SHARE_GPUS`).

    DISTBENCH_SHARE_GPUS=2 scripts/gpus --jobs 12    # docs/measured/gpus.json
    python scripts/write_detection.py               # docs/detection.md
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from measured import FOLDER, describe_installed, find_commit, keep_rows, read_rows

from distbench.faults import Fault
from distbench.gpus import count_sharers, list_models
from distbench.selftest.run import Item, check_sample, plan_selftest
from distbench.selftest.score import score_fault, score_program
from distbench.verdict import Status, Verdict

FILE = FOLDER / "gpus.json"
CLUSTERS = ("mirrored:2", "mwms:2", "ps:2+1", "central:2")
Row = Mapping[str, Any]


def run_item(item: Item, *, commit: str, until: float) -> Row | None:
    """Check a sample on its cluster, on GPUs; None where no time is left."""
    start_s = time.time()
    if start_s > until:
        return None
    verdict = check_sample(item.sample, [f"{item.cluster}@gpu"])
    [found] = verdict.values()
    seconds = round(time.time() - start_s, 1)
    return {**make_row(item, found), "seconds": seconds, "commit": commit}


def make_row(item: Item, verdict: Verdict) -> dict[str, Any]:
    """What came of a sample, and whether that is right."""
    sample, cluster = item.sample, item.cluster
    if isinstance(sample, Fault):
        cell = score_fault(sample, cluster, verdict)
        right = all((cell.code, cell.phase, cell.variable, cell.replicas))
        found = cell.found
    else:
        passed = score_program(sample, cluster, verdict)
        right, found = passed.status is Status.PASS, passed.found
    codes = [f.code for run in verdict.runs for f in run.findings if f.warning]
    return {
        "name": sample.name,
        "cluster": cluster,
        "kind": "fault" if isinstance(sample, Fault) else "program",
        "status": str(verdict.status),
        "right": right,
        "warned": codes,
        "found": list(found),
    }


def plan(known: Sequence[Row], seed: int) -> list[Item]:
    """All samples: what was not right, what was never run, and the rest."""
    items = list(plan_selftest((), CLUSTERS))
    random.Random(seed).shuffle(items)
    ranks = {(row["name"], row["cluster"]): 2 * row["right"] for row in known}
    return sorted(items, key=lambda i: ranks.get((i.sample.name, i.cluster), 1))


def measure(arguments: argparse.Namespace) -> int:
    """Run what there is time for; returns the exit status."""
    models = list_models()
    if not models:
        print("No GPU here: nvidia-smi lists none.", file=sys.stderr)
        return 2
    place = {
        **describe_installed(),
        "gpu": models[0],
        "replicas that share one": str(count_sharers()),
    }
    until = time.time() + 60 * arguments.minutes
    # What was right on another GPU is as good as never run.
    rows = read_rows(arguments.file)
    known = [row for row in rows if row["place"] == place or not row["right"]]
    planned = plan(known, arguments.seed)
    order = sorted({item.sample.name for item in planned})
    work = partial(run_item, commit=arguments.commit or find_commit(), until=until)
    # Each worker starts its checks' processes itself, and runs no op.
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        for row in pool.map(work, planned):
            if row is None:
                continue
            sign = "right" if row["right"] else "WRONG"
            print(f"{sign} {row['name']} {row['cluster']} {row['status']}", flush=True)
            keep_rows(arguments.file, [row], place, ("name", "cluster"), order)
    return 0


def main() -> int:
    """Parse the arguments, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--jobs", type=int, default=8, help="checks at a time")
    parser.add_argument("--seed", type=int, default=1, help="draws the order")
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument("--commit", help="of a copy that is no checkout")
    return measure(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
