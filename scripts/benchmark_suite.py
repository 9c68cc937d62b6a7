"""What the bench's own scenarios take, for each 300 verdicts of real clusters."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

from measured import ROOT
from processor import measure_processor

PROCESSES = 2
"""Tests at a time, as in scripts/scenarios."""
VERDICTS = 300
_JUDGED = ("pass", "fail")


def measure_suite() -> tuple[float, float]:
    """Seconds and processor seconds of `pytest scenarios/` for 300 verdicts."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "verdict.json"
        command = [sys.executable, "-m", "pytest", "scenarios", "-q"]
        command += ["-n", str(PROCESSES), "--distbench-json", str(file)]
        begin, used = perf_counter(), measure_processor()
        subprocess.run(command, check=True, cwd=ROOT, timeout=3600)
        taken, used = perf_counter() - begin, measure_processor() - used
        share = VERDICTS / count_verdicts(json.loads(file.read_text())["runs"])
    return taken * share, used * share


def count_verdicts(runs: Iterable[Mapping[str, Any]]) -> int:
    """Scenarios that ran to their end with all their phases, whatever their tiers."""
    judged = [run for run in runs if run["status"] in _JUDGED]
    return len(
        {(run["scenario"], json.dumps(run["setup"], sort_keys=True)) for run in judged}
    )
