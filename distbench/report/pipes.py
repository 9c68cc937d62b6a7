"""Named pipes that reports are written to.

Whoever opens one waits until somebody reads it, for ever if nobody does. So it is
opened before the check, without waiting long, and held until the report is there: a
reader takes the end of the only writer for the end of the report.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from distbench.errors import BadInputError

_READER_S = 5.0
"""How long it may be without a reader: somebody starts both at a time."""
_POLL_S = 0.05
_HELD: dict[Path, int] = {}
"""Open descriptors by place, each until its report is written."""


def hold_pipe(path: Path, *, reader_s: float = _READER_S) -> None:
    """Open a named pipe to which a report will be written.

    Args:
        path: The pipe.
        reader_s: How long to wait for one who reads it.

    Raises:
        BadInputError: Nobody reads it.
        OSError: It cannot be opened.
    """
    place = path.absolute()
    if place not in _HELD:
        _HELD[place] = _open_pipe(path, reader_s)


def write_pipe(path: Path, data: bytes) -> None:
    """Write to a pipe, the held one if it is, and let go of it.

    Raises:
        OSError: Nobody reads it any more.
    """
    hold_pipe(path)
    with os.fdopen(_HELD.pop(path.absolute()), "wb") as file:
        file.write(data)


def _open_pipe(path: Path, reader_s: float) -> int:
    until = time.monotonic() + reader_s
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > until:
                raise BadInputError(
                    f"'{path}' cannot be written: it is a pipe that nobody reads "
                    f"after {reader_s:g} s. Start its reader first, or give the name "
                    "of a file."
                ) from error
            time.sleep(_POLL_S)
        else:
            os.set_blocking(descriptor, True)
            return descriptor
