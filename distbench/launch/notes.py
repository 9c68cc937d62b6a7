"""What a task did last, in a file that outlives it, however it ends.

The file is mapped into the task's memory: a line costs no system call, what a killed
task has written stays, and a task that closes its descriptors still has it.
"""

from __future__ import annotations

import itertools
import mmap
from pathlib import Path

LINES = 64
"""How many lines are kept."""
LINE_BYTES = 256
"""A longer one is cut."""
TOLD = 8
"""How many lines are read."""
_CUT = b" ..."


class Notes:
    """Takes lines down.

    Args:
        path: The file, made anew.

    Raises:
        OSError: The disk is full. It has all of its place from the beginning, since a
            page that has none ends the process that writes to it.
    """

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(LINES * LINE_BYTES))
        with path.open("r+b") as file:
            self._lines = mmap.mmap(file.fileno(), 0)
        self._numbers = itertools.count()

    def add(self, line: str) -> None:
        """Take down a line, in the place of the oldest one."""
        number = next(self._numbers)
        text = f"{number} {line}".encode(errors="replace")
        if len(text) > LINE_BYTES:
            text = text[: LINE_BYTES - len(_CUT)] + _CUT
        begin = number % LINES * LINE_BYTES
        self._lines[begin : begin + LINE_BYTES] = text.ljust(LINE_BYTES, b"\0")


def read_notes(path: Path, told: int = TOLD) -> tuple[str, ...]:
    """The last lines, the oldest first; none where there is no such file."""
    try:
        content = path.read_bytes()
    except OSError:
        return ()
    found: dict[int, str] = {}
    for begin in range(0, len(content), LINE_BYTES):
        text = content[begin : begin + LINE_BYTES].rstrip(b"\0").decode(errors="ignore")
        number, _, line = text.partition(" ")
        if number.isdecimal():
            found[int(number)] = line
    return tuple(found[number] for number in sorted(found))[-told:]
