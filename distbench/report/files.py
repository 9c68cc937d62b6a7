"""Where reports are written: refused early, and never seen half written."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from distbench.errors import (
    DISK_FULL,
    BadInputError,
    ClusterError,
    describe_unwritable,
)
from distbench.report.descriptors import find_descriptor, write_descriptor
from distbench.report.pipes import hold_pipe, write_pipe

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
    with _refuse(path):
        if path.is_dir():
            raise BadInputError(f"'{path}' is a folder. Expected the name of a file.")
        folder = _follow(path).parent
        if not folder.is_dir():
            raise BadInputError(
                f"'{path}' cannot be written: there is no folder '{folder}'."
            )
        if path.exists() and not os.access(path, os.W_OK):
            raise BadInputError(f"'{path}' cannot be written: permission denied.")
        _try_place(_follow(path))


@contextlib.contextmanager
def _refuse(path: Path) -> Iterator[None]:
    """Refuse a path that the system does, were it for the length of its name alone."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # the latter for links in a circle
        number = getattr(error, "errno", None)
        if number not in DISK_FULL:  # there may be room until then
            why = describe_unwritable(error, path)
            raise BadInputError(f"'{path}' cannot be written: {why}.") from error


def _follow(path: Path) -> Path:
    """The file that a report goes to: what is a link to it stays one."""
    return path if path == STDOUT or is_device(path) else path.resolve()


def _try_place(path: Path) -> None:
    """Make the file that a report is written to first, and take it away again.

    Permissions do not tell all: a folder of the kernel's takes no files from anybody,
    and a name may be too long for the letters that are put before and behind it.
    """
    written = _place_unfinished(path)
    if path.is_fifo() and find_descriptor(path) is None:
        hold_pipe(path)
    elif written != path:
        written.touch()
        written.unlink()


def _place_unfinished(path: Path) -> Path:
    """Where a report is while it is written: the place itself of one on a device."""
    if is_device(path):
        return path
    return path.with_name(f".{path.name}.{os.getpid()}")


def is_device(path: Path) -> bool:
    """Whether a report is written into what is there: `/dev/null` or a pipe."""
    if find_descriptor(path) is not None:
        return True
    return path.exists() and not path.is_file()


@contextlib.contextmanager
def set_aside(paths: Iterable[Path]) -> Iterator[None]:
    """Take earlier reports away: nobody is to read one as one of what now begins.

    Not even where this process is killed before it has written anything. Bad usage is
    nothing that came of it, whenever it shows, and they are put back.
    """
    end = f"{os.getpid()}.old"  # another check may have the same report
    files = map(_follow, paths)
    moved = {path: path.with_name(f".{path.name}.{end}") for path in files}
    moved = {path: aside for path, aside in moved.items() if _move(path, aside)}
    try:
        yield
    except BadInputError:
        for path, aside in moved.items():
            if not path.exists():
                _move(aside, path)
        raise
    finally:
        for aside in moved.values():
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)


def _move(path: Path, to: Path) -> bool:
    """Whether there was a file, which is elsewhere now."""
    if path == STDOUT or is_device(path) or not path.is_file():
        return False
    try:
        path.replace(to)
    except OSError:
        return False
    return True


def check_folder(path: Path) -> None:
    """Refuse a folder of reports before minutes were spent on its content.

    Raises:
        BadInputError: Nothing can be written there.
    """
    with _refuse(path):
        if path.exists() and not path.is_dir():
            raise BadInputError(f"'{path}' is a file. Expected the name of a folder.")
        if path.is_symlink() and not path.exists():
            raise BadInputError(f"'{path}' cannot be made: it is a link to nothing.")
        places = (path, *path.absolute().parents)
        there = next(place for place in places if place.exists())
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
    try:
        file = _follow(path)
    except (OSError, RuntimeError) as error:  # its folder has gone meanwhile, say
        raise ClusterError(f"'{path}' could not be written: {error}.") from error
    written = _place_unfinished(file)
    try:
        if (descriptor := find_descriptor(file)) is not None:
            write_descriptor(descriptor, data)
        elif file.is_fifo():
            write_pipe(file, data)
        else:
            written.write_bytes(data)
        if written != file:
            written.replace(file)
    except OSError as error:
        if written != file:
            with contextlib.suppress(OSError):
                written.unlink()
        raise ClusterError(f"'{path}' could not be written: {error}.") from error
