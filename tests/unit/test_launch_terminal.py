"""A task talks to the bench's terminal over a socket."""

from __future__ import annotations

import errno
import io
import queue
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from distbench.launch.rundir import RunDirectory
from distbench.launch.terminal import Terminal, shorten

_PATIENCE_S = 30.0


class Typist:
    """A source of lines that come when they are typed."""

    def __init__(self) -> None:
        self.lines: queue.Queue[str | None] = queue.Queue()

    def __iter__(self) -> Iterator[str]:
        return iter(lambda: self.lines.get(), None)


def call(address: Path) -> socket.socket:
    caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    caller.settimeout(_PATIENCE_S)
    with shorten(address) as path:
        caller.connect(path)
    return caller


class Shown(io.StringIO):
    """A sink that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: queue.Queue[str] = queue.Queue()

    def write(self, text: str) -> int:
        self.writes.put(text)
        return super().write(text)


def test_lines_go_to_whoever_calls_and_text_comes_back() -> None:
    typist, shown = Typist(), Shown()
    with (
        RunDirectory() as directory,
        Terminal(directory.path / "t", typist, shown) as terminal,  # type: ignore[arg-type]
    ):
        for word in ("first", "second"):
            with call(terminal.address) as caller:
                caller.sendall(f"{word}? ".encode())
                assert shown.writes.get(timeout=_PATIENCE_S) == f"{word}? "
                typist.lines.put(f"{word}!\n")
                assert caller.recv(100) == f"{word}!\n".encode()
        typist.lines.put(None)


@pytest.mark.parametrize("depth", [0, 200], ids=["near", "deep"])
def test_the_end_of_the_input_is_told(tmp_path: Path, depth: int) -> None:
    folder = tmp_path / ("d" * depth)
    folder.mkdir(exist_ok=True)
    with (
        Terminal(folder / "t", io.StringIO("c\n"), Shown()) as terminal,
        call(terminal.address) as caller,
    ):
        assert caller.makefile("r").read() == "c\n"


def test_strangers_cannot_reach_it() -> None:
    with (
        RunDirectory() as directory,
        Terminal(directory.path / "t", io.StringIO(), Shown()) as terminal,
    ):
        folder = terminal.address.parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_letters_stay_whole_and_what_is_none_ends_nothing(tmp_path: Path) -> None:
    typed = io.TextIOWrapper(io.BytesIO(b"p \xff\nnext\n"), encoding="utf-8")
    shown = Shown()
    text = "a" + "é" * 5000
    with Terminal(tmp_path / "t", typed, shown) as terminal:
        caller = call(terminal.address)
        with caller, caller.makefile("rb") as lines:
            assert lines.readlines() == ["p \ufffd\n".encode(), b"next\n"]
            caller.sendall(text.encode())
            told = ""
            while len(told) < len(text):
                told += shown.writes.get(timeout=_PATIENCE_S)
    assert told == text


class Gone(io.StringIO):
    """A sink whose reader has gone, as that of `| head` does."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(errno.EPIPE, text)


def test_a_sink_that_takes_no_more_is_told_for_what_it_is() -> None:
    """The task only sees that its call has ended."""
    typist = Typist()
    with (
        RunDirectory() as directory,
        Terminal(directory.path / "t", typist, Gone()) as terminal,  # type: ignore[arg-type]
    ):
        terminal.check_sink()
        with call(terminal.address) as caller:
            caller.sendall(b"a value")
            while caller.recv(100):
                pass
        with pytest.raises(BrokenPipeError, match="a value"):
            terminal.check_sink()
        typist.lines.put(None)
