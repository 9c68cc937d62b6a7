"""Keeps a folder of a run alike on two machines: what one side wrote, the other gets.

Files are written under a temporary name and renamed, so a file that is there is whole.
A name that ends in a slash is a folder's. Nothing is ever removed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

_PRIVATE = "group-"
"""Folders of logs, stacks and temporary files, which have ways of their own."""

_Version = tuple[int, int, int]


class Mirror:
    """One side's copy of the folder, and what the other side has of it.

    Args:
        root: The folder on this machine.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, _Version] = {}
        self._folders: set[str] = set()

    def list_news(self, names: Iterable[str] = ("",)) -> Iterator[tuple[str, bytes]]:
        """Name and content of each file that the other side lacks, or has as it was.

        Args:
            names: Files and folders to look at, relative to the root; the root itself
                by default. Of a name that ends in a slash the folder alone is meant.
        """
        for name in sorted({f for n in names for f in self._list_places(n)}):
            if name.endswith("/"):
                if name not in self._folders:
                    self._folders.add(name)
                    yield name, b""
                continue
            try:
                with (self._root / name).open("rb") as file:
                    version = _get_version(os.fstat(file.fileno()))
                    if self._known.get(name) == version:
                        continue
                    content = file.read()
            except FileNotFoundError:
                continue  # renamed meanwhile: it comes under its name
            self._known[name] = version
            yield name, content

    def write(self, name: str, content: bytes) -> None:
        """Take a file of the other side.

        Raises:
            ValueError: The name leads out of the folder.
        """
        path = self._root / name
        if Path(os.path.normpath(path)) != path or self._root not in path.parents:
            raise ValueError(f"'{name}' lies outside of the run's folder")
        if name.endswith("/"):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folders.add(name)
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=path.parent)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(content)
            file.flush()
            self._known[name] = _get_version(os.fstat(descriptor))
        Path(temporary).replace(path)

    def _list_places(self, name: str) -> Iterator[str]:
        if name.endswith("/"):
            yield name
            return
        place = self._root / name
        if place.is_file():
            yield name
        for folder, folders, files in os.walk(place):
            here = Path(folder).relative_to(self._root)
            if here == Path():
                folders[:] = [f for f in folders if not f.startswith(_PRIVATE)]
            elif here.parts[0].startswith(_PRIVATE):
                folders.clear()
                continue
            else:
                yield f"{here}/"
            yield from (str(here / f) for f in files if not f.startswith(_TEMPORARY))


_TEMPORARY = ".arriving-"


def _get_version(status: os.stat_result) -> _Version:
    return status.st_ino, status.st_mtime_ns, status.st_size
