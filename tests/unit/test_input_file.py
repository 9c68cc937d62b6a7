"""Files that the user names: what has an end is read, and nothing else."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from verdict_samples import make_run, make_verdict

from distbench import input_file
from distbench.cli.arguments import read_verdict
from distbench.errors import BadInputError
from distbench.history.night import make_night
from distbench.history.quarantine import read_quarantine
from distbench.history.store import History
from distbench.input_file import read_input
from distbench.target import parse_target
from distbench.verdict.document import verdict_to_json


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_what_is_no_file_is_refused_at_once(
    pipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_file, "_WRITER_S", 0.0)
    for path, why in (
        (Path("/dev/zero"), r"it is a device, which may have no end"),
        (pipe, r"it is a pipe that nobody wrote to within 0 s"),
        (pipe.parent, r"Is a directory: '.*'"),
        (pipe / "x", r"Not a directory"),
    ):
        with pytest.raises(BadInputError, match=why + r".*Expected a list\."):
            read_input(path, "a list")


def test_devices_are_refused_whatever_is_read() -> None:
    with pytest.raises(BadInputError, match="Expected a quarantine list"):
        read_quarantine(Path("/dev/zero"))
    with pytest.raises(BadInputError, match="distbench check --json FILE"):
        read_verdict(Path("/dev/zero"))


def test_the_device_without_content_is_an_empty_file() -> None:
    assert read_quarantine(Path(os.devnull)) == ()


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_pipe_is_read_to_its_end(pipe: Path, before: bool) -> None:
    """Also one whose writer comes late, is slow, or writes more than a pipe holds."""
    verdict = make_verdict(make_run())
    text = verdict_to_json(verdict) + " " * (1 << 17)

    def write() -> None:
        with pipe.open("w") as file:
            file.write(text[:99])
            file.flush()
            time.sleep(0.1)
            file.write(text[99:])

    writer = threading.Thread(target=write)
    (writer.start if before else threading.Timer(0.1, writer.start).start)()
    assert read_verdict(pipe) == verdict
    writer.join()


@pytest.mark.parametrize("text", ["text", ""])
def test_what_a_shell_hands_over_is_read_after_its_writer_has_ended(text: str) -> None:
    reader, writer = os.pipe()
    os.write(writer, text.encode())
    os.close(writer)
    try:
        assert read_input(Path(f"/dev/fd/{reader}"), "a list") == text
    finally:
        os.close(reader)


def test_a_pipe_is_no_history(pipe: Path) -> None:
    night = make_night(make_verdict(make_run()))
    with pytest.raises(BadInputError, match="is no history, but a folder, a device"):
        History(pipe).add(night)


def test_a_pipe_is_no_target(pipe: Path) -> None:
    path = pipe.rename(pipe.with_suffix(".py"))
    with pytest.raises(BadInputError, match="is a device or a pipe") as refused:
        parse_target(f"{path}:Program")
    assert "Did you mean" not in str(refused.value)
