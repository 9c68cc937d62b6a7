"""What a task's log says of its crash: Python lists what all of its threads did.

The thread that crashed is the current one. There is none if it was one of a library's
own, which runs no Python.
"""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

CRASHED = "Fatal Python error: "
"""What Python's words on a crash begin with."""
_CURRENT = "Current thread "
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)')
_TAIL_BYTES = 1 << 18
_LIBRARIES = (
    str(Path(__file__).parents[1]),  # the bench itself
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")),
    "/site-packages/",
    "/dist-packages/",
)


def find_crash(log: Path) -> str:
    """Where a task crashed: the innermost line of Python of the thread that did.

    Args:
        log: What the task printed.

    Returns:
        `file:line in function`, of no library where there is such a frame; `""` if
        there was no crash, or in a thread without Python.
    """
    text = read_end(log, _TAIL_BYTES)
    told = text.rpartition(CRASHED)[2] if CRASHED in text else ""
    thread = told.partition(_CURRENT)[2].partition("\n\n")[0]
    frames = [found for found in map(_FRAME.match, thread.splitlines()) if found]
    own = [frame for frame in frames if not _is_library(frame["file"])]
    places = [f"{f['file']}:{f['line']} in {f['name']}" for f in own or frames]
    return places[0] if places else ""


def read_end(log: Path, most: int) -> str:
    """The last so many bytes of a log as text, `""` where there is none."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def _is_library(file: str) -> bool:
    return any(place in file for place in _LIBRARIES)
