"""Measure what one check costs: from the shell, and inside a running process.

Cold is a whole `distbench check` from prompt to verdict: Python starts, the fork
server imports TensorFlow, and a cluster runs. Warm is one more check in a process whose
fork server is there already; every run still has fresh processes. Both take the exact
and the bounded tier of the linear workload.

    python scripts/measure_check.py --clusters mwms:2 mwms:4 --runs 5 --json check.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from distbench.checking.check import check_target
from distbench.launch.spares import Spares
from distbench.options import CheckOptions
from distbench.target import parse_target

SUBJECT = (
    f"{Path(__file__).parents[1] / 'scenarios' / 'optimizers' / 'adam.py'}:make_adam"
)
WORKLOAD = "linear"


def check_cold(cluster: str) -> None:
    """One check in a process of its own."""
    subprocess.run(
        [
            *(sys.executable, "-c", "from distbench.cli import main; main()"),
            *("check", SUBJECT, "-c", cluster, "--workload", WORKLOAD),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=300,
    )


def check_warm(cluster: str, spares: Spares | None = None) -> None:
    """One check in this process, which may have its tasks from those that wait."""
    options = CheckOptions(clusters=(cluster,), workloads=(WORKLOAD,))
    check_target(parse_target(SUBJECT), options, spares=spares).raise_for_status()


def measure(function: Callable[[str], None], cluster: str, runs: int) -> dict[str, Any]:
    """Seconds of several runs."""
    taken = []
    for _ in range(runs):
        begin = time.perf_counter()
        function(cluster)
        taken.append(time.perf_counter() - begin)
    return {
        "median_s": statistics.median(taken),
        "min_s": min(taken),
        "max_s": max(taken),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and write it as JSON where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clusters", nargs="+", default=["mwms:2"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    check_warm(options.clusters[0])  # the fork server starts here
    rows = [
        {
            "cluster": cluster,
            "cold": measure(check_cold, cluster, options.runs),
            "warm": measure(check_warm, cluster, options.runs),
        }
        for cluster in options.clusters
    ]
    print("cluster     cold [s] (min-max)      warm [s] (min-max)      cold / warm")
    for row in rows:
        cold, warm = row["cold"], row["warm"]
        print(
            f"{row['cluster']:10}  {cold['median_s']:6.2f} ({cold['min_s']:.2f}-"
            f"{cold['max_s']:.2f})   {warm['median_s']:10.2f} ({warm['min_s']:.2f}-"
            f"{warm['max_s']:.2f})   {cold['median_s'] / warm['median_s']:10.1f}"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
