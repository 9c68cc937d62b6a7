"""The bench's side of the fork server."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest
from waiting import comes_true

from distbench.errors import ClusterError
from distbench.launch import forkclient
from distbench.launch.forkclient import ForkServer, ServerDiedError


def write_endless_import(folder: Path) -> Path:
    """A module `imports_for_ever`; returns what it makes as it begins."""
    begun = folder / "begun"
    (folder / "imports_for_ever.py").write_text(
        f"import pathlib, threading\npathlib.Path({str(begun)!r}).touch()\n"
        "threading.Event().wait()\n"
    )
    return begun


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
    words = r"tasks, ended with exit code 7\. The bench ends no process so: look for"
    with pytest.raises(ServerDiedError, match=words):
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


def test_a_server_that_could_not_fork_hears_of_the_ends_of_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forks_later.py").write_text(
        "import os\nfork = os.fork\ndef fail():\n    os.fork = fork\n"
        "    raise BlockingIOError(11, 'no more processes')\nos.fork = fail\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    server = ForkServer(("forks_later",), {})
    with pytest.raises(ClusterError, match="could not fork a task"):
        server.fork(0, 1, "")
    ours, theirs = socket.socketpair()
    with theirs:
        process = server.fork(theirs.fileno(), 1, "")
    ours.close()  # the task ends, as there is no bench
    assert comes_true(lambda: process.poll() is not None)
    server.close()


def test_a_server_that_still_imports_is_ended_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has been forked, and Ctrl-C should not take as long as the import."""
    begun = write_endless_import(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(forkclient, "_END_TIMEOUT_S", None)  # it would wait for ever
    server = ForkServer(("imports_for_ever",), {})
    assert comes_true(begun.exists)
    server.close()
    assert server._popen.returncode == -signal.SIGKILL


def test_a_server_that_is_stopped_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows when it goes on, and the import has minutes."""
    begun = write_endless_import(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    server = ForkServer(("imports_for_ever",), {})
    assert comes_true(begun.exists)
    os.kill(server.pid, signal.SIGSTOP)
    begin = time.monotonic()
    with pytest.raises(ServerDiedError, match="was stopped by a signal such as SIGSTO"):
        server.wait_ready()
    assert time.monotonic() - begin < forkclient.READY_TIMEOUT_S / 2
    assert server._popen.returncode == -signal.SIGKILL


def test_an_import_that_takes_long_is_told_with_the_time_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_endless_import(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(forkclient, "READY_TIMEOUT_S", 1.0)
    monkeypatch.setattr(forkclient, "_LONG_S", 0.25)
    server = ForkServer(("imports_for_ever",), {})
    said: list[str] = []
    words = "no answer in 1 s while it imported imports_for_ever"
    with pytest.raises(ClusterError, match=words):
        server.wait_ready(said.append)
    (told,) = said
    assert told.endswith("still imports imports_for_ever. It has 1 s in all.")
