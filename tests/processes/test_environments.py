"""A check under another environment, whose bench is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from waiting import comes_true, is_gone_soon

_BISECT = """
from distbench import environments
from distbench.launch.rundir import RunDirectory
with RunDirectory() as folder:
    place = folder.make_folder("good")
    told = f"echo $$ > {place}/new; mv {place}/new {place}/pid; exec sleep 600"
    print(place, flush=True)
    environments._run(["sh", "-c", told], timeout_s=60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="need Linux's parent-death signal")
def test_neither_folder_nor_check_outlives_a_killed_bisect() -> None:
    bisect = subprocess.Popen(
        [sys.executable, "-c", _BISECT], stdout=subprocess.PIPE, text=True
    )
    try:
        assert bisect.stdout is not None
        place = Path(bisect.stdout.readline().strip())
        assert comes_true((place / "pid").exists)
        pid = int((place / "pid").read_text())
    finally:
        bisect.kill()
        bisect.communicate()
    assert is_gone_soon(pid)
    assert comes_true(lambda: not place.parent.exists())
