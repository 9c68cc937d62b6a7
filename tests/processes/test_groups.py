"""What is made once for a module is made once, however many workers run its tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

_CONFTEST = Path(__file__).parents[1] / "conftest.py"
_SUITE = """\
import pytest

@pytest.fixture(scope="module")
def made():
    with open("made.txt", "a") as file:
        file.write(__name__ + "\\n")

@pytest.mark.parametrize("number", range(8))
def test_it_is_there(made, number):
    pass
"""


def test_one_worker_runs_all_tests_of_a_module_that_share_something(
    tmp_path: Path,
) -> None:
    shutil.copy(_CONFTEST, tmp_path)
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(_SUITE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "16 passed" in done.stdout, done.stdout + done.stderr
    made = (tmp_path / "made.txt").read_text().split()
    assert sorted(made) == ["test_a", "test_b"]
