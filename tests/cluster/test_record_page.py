"""The page on recording, held against runs of its script."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from distbench.cli import app

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "record.md"
SCRIPT = ROOT / "docs" / "examples" / "record_sums.py"


def read_blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def run(script: Path, *words: object) -> None:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment["CUDA_VISIBLE_DEVICES"] = "-1"
    done = subprocess.run(
        [sys.executable, str(script), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=200,
        env=environment,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
def test_the_page_says_what_comes_out(tmp_path: Path) -> None:
    _, shown, mistake, _ = read_blocks("python")
    script = SCRIPT.read_text("utf-8")
    assert shown in script
    applied = re.search(r" +optimizer\.apply_gradients.*\n", script)
    assert applied is not None
    wrong = tmp_path / "wrong.py"
    wrong.write_text(script.replace(applied.group(), mistake), "utf-8")
    for file, replicas, name in (
        (SCRIPT, 2, "two"),
        (SCRIPT, 1, "one"),
        (wrong, 2, "w"),
    ):
        run(file, replicas, tmp_path / name)

    def diff(name: str) -> tuple[int, str]:
        words = ["trace", "diff", str(tmp_path / name), str(tmp_path / "one")]
        done = CliRunner().invoke(app, words)
        return done.exit_code, " ".join(done.output.split())

    code, text = diff("two")
    assert (code, "Equal but for rounding" in text) == (0, True), text
    code, text = diff("w")
    assert code == 1
    (told,) = read_blocks("text")
    for line in told.splitlines():
        assert " ".join(line.split()) in text, text
