"""Reads a file that the user names: text from whatever has an end.

A shell hands over what another program writes as a pipe (`<(...)`), which is as good as
a file. A device is none: `/dev/zero` fills the memory. Nor is a named pipe that nobody
writes to, at which a plain read waits for ever.
"""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from distbench.errors import BadInputError

_WRITER_S = 5.0
"""How long a named pipe may be without a writer: somebody starts both at a time."""
_POLL_S = 0.05
_CHUNK = 1 << 20


def read_input(path: Path, expected: str) -> str:
    """The text of a file.

    Args:
        path: The file, or a pipe.
        expected: What it should be, for the message.

    Raises:
        BadInputError: It cannot be read, or is nothing that has an end.
    """
    try:
        return b"".join(_read(path)).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(
            f"'{path}' cannot be read: {error}. Expected {expected}."
        ) from error


def _read(path: Path) -> Iterator[bytes]:
    # A pipe is not to be waited for while it is opened; nothing to a regular file.
    def open_at_once(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)

    with open(path, "rb", buffering=0, opener=open_at_once) as file:
        descriptor = file.fileno()
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            yield file.read()
        elif stat.S_ISFIFO(mode) and path.resolve().is_fifo():
            yield from _read_named_pipe(descriptor)
        # To a pipe without a name comes nobody who does not write to it yet.
        elif stat.S_ISFIFO(mode) or os.isatty(descriptor):
            yield from _read_until_end(descriptor)
        elif not path.samefile(os.devnull):
            raise OSError("it is a device, which may have no end, and no file or pipe")


def _read_named_pipe(descriptor: int) -> Iterator[bytes]:
    """What others write, up to the end; one who is silent is waited for."""
    until = time.monotonic() + _WRITER_S
    found = False
    while not found:
        for data in _read_until_end(descriptor):
            found = True
            yield data
        if not found and time.monotonic() > until:
            raise OSError(f"it is a pipe that nobody wrote to within {_WRITER_S:g} s")
        if not found:
            time.sleep(_POLL_S)


def _read_until_end(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll()
            continue
        if not data:
            return
        yield data
