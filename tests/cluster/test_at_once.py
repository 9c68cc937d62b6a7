"""Several scenarios at one time say what they say one after the other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from launch_support import TIMEOUT_S
from waiting import comes_true, is_gone_soon

from distbench.checking.check import check_target
from distbench.options import CheckOptions
from distbench.target import parse_target
from distbench.verdict import Status
from distbench.verdict.document import verdict_from_json, verdict_to_json

pytestmark = pytest.mark.cluster
# Wrong, and confirmed by a cluster of its own in the first scenario that shows it.
TARGET = (
    f"{Path(__file__).parents[2] / 'docs/examples/my_optimizer.py'}:make_clipped_sgd"
)


def check(jobs: int) -> Any:
    options = CheckOptions(clusters=("mwms:2", "mirrored:2"), steps=2, jobs=jobs)
    verdict = check_target(parse_target(TARGET), options)
    document = json.loads(verdict_to_json(verdict))
    del document["begun"], document["options"]
    for part in (document, *document["runs"]):
        del part["seconds"]
    return document


@pytest.mark.nightly
def test_the_verdict_is_that_of_one_after_the_other() -> None:
    at_once = check(3)
    assert at_once == check(1)
    confirmed = [run["findings"][0]["confirmed"] for run in at_once["runs"]]
    assert confirmed == [True, None, None, None]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_signal_ends_all_of_them_and_leaves_nothing(
    number: signal.Signals, tmp_path: Path
) -> None:
    report = tmp_path / "verdict.json"
    words = ["check", TARGET, "-c", "mwms:2", "-c", "mwms:3", "-j", "2"]
    words += ["--json", str(report)]
    folder = tmp_path / "tmp"
    folder.mkdir()
    bench = subprocess.Popen(
        # What a shell starts with & ignores SIGINT, and so do its children.
        ["env", "--default-signal=INT", sys.executable, "-m", "distbench", *words],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    with bench:
        assert bench.stderr is not None
        try:
            begun = 0
            while begun < 2:
                line = bench.stderr.readline()
                assert line
                begun += line.endswith("...\n")
            own = psutil.Process(bench.pid)
            # The fork server, two references, and the clusters.
            assert comes_true(lambda: len(own.children(recursive=True)) > 6)
            started = [process.pid for process in own.children(recursive=True)]
            bench.send_signal(number)
            assert bench.wait(TIMEOUT_S) == 128 + number
        finally:
            bench.kill()
    assert [pid for pid in started if not is_gone_soon(pid)] == []
    assert comes_true(lambda: not any(folder.iterdir()))
    verdict = verdict_from_json(report.read_text())
    assert {run.cluster for run in verdict.runs} == {"mwms:2", "mwms:3"}
    left = {run.message for run in verdict.runs if run.status is Status.ERROR}
    ended = "interrupted" if number == signal.SIGINT else "ended by SIGTERM"
    assert left == {f"Not judged: {ended}"}
