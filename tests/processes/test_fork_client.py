"""The bench's side of the fork server."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from launch_support import comes_true

from distbench.errors import ClusterError
from distbench.launch import forkclient
from distbench.launch.forkclient import ForkServer, ServerDiedError


def test_a_server_that_was_killed_is_told_with_the_signal_and_why() -> None:
    server = ForkServer((), {})
    server.wait_ready()
    os.kill(server.pid, signal.SIGKILL)
    words = r"which starts the tasks, was killed by SIGKILL\. Linux does so when memory"
    with pytest.raises(ServerDiedError, match=words):
        server.fork(0, 1, "")


def test_a_server_whose_import_ends_it_is_told_with_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ends_its_process.py").write_text("import os\nos._exit(7)\n")
    monkeypatch.syspath_prepend(tmp_path)
    server = ForkServer(("ends_its_process",), {})
    with pytest.raises(ServerDiedError, match=r"tasks, ended with exit code 7\.$"):
        server.wait_ready()


def test_an_import_that_lacks_memory_is_no_broken_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "finds_no_room.py").write_text(
        "raise ImportError('lib.so: failed to map segment from shared object')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    server = ForkServer(("finds_no_room",), {})
    with pytest.raises(ClusterError, match=r"shared object\. Free memory.*ulimit -v"):
        server.wait_ready()


def test_a_server_that_still_imports_is_ended_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has been forked, and Ctrl-C should not take as long as the import."""
    begun = tmp_path / "begun"
    (tmp_path / "imports_for_ever.py").write_text(
        f"import pathlib, threading\npathlib.Path({str(begun)!r}).touch()\n"
        "threading.Event().wait()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(forkclient, "_END_TIMEOUT_S", None)  # it would wait for ever
    server = ForkServer(("imports_for_ever",), {})
    assert comes_true(begun.exists)
    server.close()
    assert server._popen.returncode == -signal.SIGKILL
