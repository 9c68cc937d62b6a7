"""What scripts of findings show, where nothing of the bench is on the path."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from distbench.repro.case import pick_case
from distbench.repro.script import write_script
from distbench.verdict import Verdict
from distbench.verdict.document import verdict_from_json, verdict_to_json

FOLDER = Path(__file__).parent
TIMEOUT_S = 300


def run_script(verdict: Verdict, folder: Path) -> tuple[int, str, str]:
    """Write and run the script, where nothing of the bench is on the path."""
    text = write_script(pick_case(verdict), verdict.environment)
    assert "import distbench" not in text
    assert text.count("\n") < 60
    file = folder / "shown.py"
    file.write_text(text)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    (folder / "scratch").mkdir(exist_ok=True)
    environment["TMPDIR"] = str(folder / "scratch")
    done = subprocess.run(
        [sys.executable, "-P", file],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=folder,
        env=environment,
    )
    assert not list((folder / "scratch").iterdir())  # such as files of AutoGraph
    return done.returncode, done.stdout, done.stderr


def name_other(verdict: Verdict, target: str) -> Verdict:
    """The same verdict, said of another subject."""
    document = json.loads(verdict_to_json(verdict))
    for run in document["runs"]:
        run["setup"]["target"] = target
    return verdict_from_json(json.dumps(document))


def read_numbers(printed: str) -> tuple[float, dict[int, float]]:
    one = re.search(r"on one device: (\S+)", printed)
    assert one is not None, printed
    many = re.findall(r"replica (\d+): (\S+),", printed)
    return float(one[1]), {int(replica): float(number) for replica, number in many}


def check_scripts(verdict: Verdict, right: str, folder: Path) -> None:
    """The script shows a verdict's numbers, and equal ones of a right subject."""
    case = pick_case(verdict)
    outcome, bound = case.outcome, case.bound
    code, printed, errors = run_script(verdict, folder)
    assert code == 1, printed + errors
    one, many = read_numbers(printed)
    assert abs(one - outcome.expected) <= bound
    assert set(many) == set(range(2 if case.spec.kind in ("mirrored", "mwms") else 1))
    if outcome.observed == outcome.observed:  # of a wrong start nothing was observed
        assert abs(many[outcome.replica] - outcome.observed) <= bound
    assert abs(many[outcome.replica] - one) > bound

    other = name_other(verdict, f"{FOLDER / right}")
    code, printed, errors = run_script(other, folder)
    assert code == 0, printed + errors
    one, many = read_numbers(printed)
    assert all(abs(number - one) <= bound for number in many.values())
