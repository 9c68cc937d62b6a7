"""Where reports are written: refused early, and never seen half written."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from distbench.errors import BadInputError, ClusterError

STDOUT = Path("-")
"""What most tools call standard output; whoever writes there says nothing else there.
"""


def check_place(path: Path) -> None:
    """Refuse a report's place before minutes were spent on its content.

    Raises:
        BadInputError: The file cannot be written there.
    """
    if path == STDOUT:
        return
    if path.is_dir():
        raise BadInputError(f"'{path}' is a folder. Expected the name of a file.")
    if not path.parent.is_dir():
        raise BadInputError(
            f"'{path}' cannot be written: there is no folder '{path.parent}'."
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise BadInputError(f"'{path}' cannot be written: permission denied.")


def remove_earlier(path: Path) -> None:
    """Take away an earlier report: nobody is to read it as one of what now begins."""
    if path != STDOUT and path.is_file():
        with contextlib.suppress(OSError):
            path.unlink()


def check_folder(path: Path) -> None:
    """Refuse a folder of reports before minutes were spent on its content.

    Raises:
        BadInputError: Nothing can be written there.
    """
    if path.exists() and not path.is_dir():
        raise BadInputError(f"'{path}' is a file. Expected the name of a folder.")
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise BadInputError(f"'{path}' cannot be made: '{there}' takes no files.")


def write_report(path: Path, text: str) -> None:
    """Write a file; readers see the old one or the whole new one.

    Raises:
        ClusterError: The machine could not write it, for lack of space for instance.
        BrokenPipeError: Whoever read standard output has gone.
    """
    if path == STDOUT:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    data = text.encode("utf-8", errors="backslashreplace")
    is_device = path.exists() and not path.is_file()  # such as /dev/stdout
    written = path if is_device else path.with_name(f".{path.name}.{os.getpid()}")
    try:
        written.write_bytes(data)
        if not is_device:
            written.replace(path)
    except OSError as error:
        if not is_device:
            with contextlib.suppress(OSError):
                written.unlink()
        raise ClusterError(f"'{path}' could not be written: {error}.") from error
