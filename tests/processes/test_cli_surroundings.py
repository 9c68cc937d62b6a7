"""The command in a folder, and with streams, that are no longer there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def test_a_current_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    command = f'rmdir "$PWD"; exec "{sys.executable}" -m distbench check a.b:c'
    ended = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2
    assert "The current folder does not exist any more" in ended.stderr


def test_a_caller_may_have_closed_all_streams() -> None:
    closing = f'exec "{sys.executable}" -m distbench list codes <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", closing], timeout=60).returncode == 0


def test_who_reads_no_messages_has_the_exit_code() -> None:
    command = [sys.executable, "-m", "distbench", "explain", "nonsense"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        process.stderr.close()
        assert process.wait(timeout=60) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="has no device that is full")
def test_messages_for_which_there_is_no_room_leave_the_exit_code() -> None:
    command = [sys.executable, "-m", "distbench", "explain", "nonsense"]
    with Path("/dev/full").open("w") as full:
        assert subprocess.run(command, stderr=full, timeout=60).returncode == 2


def test_a_reader_that_goes_away_is_no_failure() -> None:
    command = [sys.executable, "-m", "distbench", "list", "codes"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=60) == 128 + signal.SIGPIPE


def test_ctrl_c_while_python_ends_is_no_traceback() -> None:
    """Tasks are ended then, and whoever is impatient presses it again."""
    code = (
        "import atexit, os, signal, sys\n"
        "from distbench.cli import main\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
        "sys.argv[1:] = ['list', 'codes']\n"
        "main()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
