"""The bench's side of the fork server."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from launch_support import comes_true

from distbench.launch import forkclient
from distbench.launch.forkclient import ForkServer


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
