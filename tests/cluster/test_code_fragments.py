"""Fragments of code in the documentation call what there is, as it is to be called."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pages import PAGES, ROOT, read_blocks

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


def test_every_fragment_runs(tmp_path: Path) -> None:
    count = sum(
        block.find_mark("fragment") is not None
        for page in PAGES
        for block in read_blocks(page)
    )
    search = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "unit")))
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("code_fragments.py"), tmp_path],
        env={**os.environ, "PYTHONPATH": search, "CUDA_VISIBLE_DEVICES": "-1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{count} fragments, 0 failed" in done.stdout
