"""The doctor on a machine that can run clusters: this one."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.cluster


def test_the_doctor_starts_a_fork_server_and_is_content() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "distbench", "doctor"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok  fork server" in done.stdout
    assert "This machine can run distbench." in done.stdout
