"""Names of what this process has open, as `/dev/stdout` and a shell's `>(...)` are.

Such a name may lead to a file, where standard output goes to one. To write a new file
and give it the name would take the name away from the whole machine.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

_NAME = re.compile(rf"/(?:dev|proc/(?:self|thread-self|{os.getpid()}))/fd/(\d+)")
_LINKS = 40
"""So many links lead somewhere at most, as for Linux."""


def find_descriptor(path: Path) -> int | None:
    """The open descriptor that a path is a name of."""
    place = path.absolute()
    for _ in range(_LINKS):
        if found := _NAME.fullmatch(str(place)):
            return int(found[1])
        if not place.is_symlink():
            return None
        place = place.parent / place.readlink()
    return None


def write_descriptor(descriptor: int, data: bytes) -> None:
    """Write where a descriptor is, after what was printed there.

    Raises:
        OSError: It is not open any more, or takes nothing.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)
