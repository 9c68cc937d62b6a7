"""What takes many processes: fifty groups, a pytest with its own workers, a night."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launch_support import check_no_leak, open_starter
from plugin_suites import check_endings, check_one_document, prepare
from waiting import comes_true

from distbench.launch.rundir import RunDirectory

ROOT = Path(__file__).parents[2]
pytest_plugins = ["pytester"]


def test_fifty_groups_leak_no_descriptors() -> None:
    with RunDirectory() as directory, open_starter(directory) as start:
        check_no_leak(start, groups=50)


def test_verdicts_of_all_workers_are_in_one_document(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(pytester, monkeypatch)
    check_one_document(pytester, "-n", "2")


def test_how_each_test_ended_is_written_from_all_workers(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(pytester, monkeypatch)
    check_endings(pytester, "-n", "2")


def test_a_night_that_is_asked_to_end_writes_what_it_has(tmp_path: Path) -> None:
    """As a queue does: SIGTERM, also where SIGINT is ignored, as behind a shell's &."""
    checkout = tmp_path / "checkout"
    for name in ("scripts", "scenarios/optimizers"):
        shutil.copytree(ROOT / name, checkout / name)
    (checkout / "scenarios" / "test_a.py").write_text("def test_it(): pass\n")
    (checkout / "scenarios" / "test_b.py").write_text(
        "import time\ndef test_first(): pass\ndef test_hangs(): time.sleep(60)\n"
    )
    (checkout / "scenarios" / "test_c.py").write_text("def test_it(): pass\n")
    words = [str(checkout / "scripts" / "nightly.py"), "--only", "scenarios-*"]
    process = subprocess.Popen(
        [sys.executable, *words, "--out", str(tmp_path / "n")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        name = "n/*/jobs/scenarios-test_b.log"
        assert comes_true(
            lambda: any("." in p.read_text() for p in tmp_path.glob(name))
        )
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=60)[0]
    finally:
        process.kill()
    assert process.returncode == 0
    assert "no time for: scenarios-test_b, scenarios-test_c" in rest
    [place] = (tmp_path / "n").glob("*/verdict.json")
    runs = json.loads(place.read_text())["runs"]
    assert [run["scenario"] for run in runs] == ["test_it", "test_first"]
