"""A Python file of the user's, imported at its place or from a copy of it."""

from __future__ import annotations

import contextlib
import importlib.util
import linecache
import os
import platform
import sys
import tempfile
from hashlib import sha256
from importlib.abc import SourceLoader
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

_STEM = 40
_FOR_CHILDREN = """import sys
from pathlib import Path

from distbench.target.carried import import_file

# Python takes what stands here at the end for the module that it has imported.
del sys.modules[__name__]
import_file(Path({path!r}), {copy!r}, is_kept={is_kept})
"""


class _CarriedLoader(SourceLoader):
    """Loads a file from a copy, as if it were at its own place.

    Python asks it for the source too: for tracebacks, and for AutoGraph.
    """

    def __init__(self, path: Path, copy: str) -> None:
        self._path = path
        self._copy = copy

    def get_filename(self, fullname: str) -> str:
        del fullname
        return str(self._path)

    def get_data(self, path: str | bytes) -> bytes:
        del path
        return Path(self._copy).read_bytes()


def import_file(path: Path, copy: str, *, is_kept: bool) -> ModuleType:
    """Import a file under a name that no other module has, equal in all processes.

    Args:
        path: The file.
        copy: What travelled with the run; it counts where the file is not.
        is_kept: The copy counts whatever the file holds: it may have been saved since.

    Raises:
        ImportError: There is another file in its place, or it is no Python file.
        SyntaxError: Its bytes are no text.
    """
    loader = None
    if copy and (is_kept or not path.is_file()):
        loader = _CarriedLoader(path, copy)
    elif copy and path.read_bytes() != Path(copy).read_bytes():
        raise ImportError(
            f"'{path}' on {platform.node()} is another file than that of the bench. "
            "Copy it there again, or remove it"
        )
    name = _name_module(path)
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    _check_text(path, Path(copy if loader else path).read_bytes())
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if is_kept:
        _keep_lines(path, copy)
    if copy:
        _offer_to_children(name, path, copy, is_kept=is_kept)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _name_module(path: Path) -> str:
    # A folder's name need not be text. Of a file's as much as a name of a file takes
    # besides, without what would make it a module of a package.
    stem = path.stem.replace(".", "_")[:_STEM]
    return f"distbench_target_{stem}_{sha256(os.fsencode(path)).hexdigest()[:8]}"


def _offer_to_children(name: str, path: Path, copy: str, *, is_kept: bool) -> None:
    """Have processes that the file spawns import it, which know `sys.path` alone.

    What they are sent to run names the module that it stands in.
    """
    if PathFinder.find_spec(name):
        return  # this is such a process
    # Where there is no room for it only who spawns has to fail.
    with contextlib.suppress(OSError):
        folder = tempfile.mkdtemp(prefix="importable-")
        (Path(folder) / f"{name}.py").write_text(
            _FOR_CHILDREN.format(path=str(path), copy=copy, is_kept=is_kept),
            encoding="utf-8",
        )
        sys.path.append(folder)


def _check_text(path: Path, data: bytes) -> None:
    """Refuse a file that is no text, as Python does where it is run.

    An import takes any bytes in a comment; AutoGraph then cannot read the source.
    """
    try:
        importlib.util.decode_source(data)
    except (SyntaxError, UnicodeDecodeError):
        compile(data, str(path), "exec")  # tells of it itself if it is more
    else:
        return
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            raise SyntaxError(
                f"{line[error.start :][:1]!r} is no UTF-8. Save the file as that, or "
                "name its encoding in its first line, as in '# coding: latin-1'",
                (str(path), number, None, None),
            ) from None


def _keep_lines(path: Path, copy: str) -> None:
    """Have AutoGraph and tracebacks read the lines of the copy.

    They would read the file's, though other code may stand there by now. A record
    without a time counts as that of a loader, and is never read anew.
    """
    data = Path(copy).read_bytes()
    try:
        lines = importlib.util.decode_source(data).splitlines(keepends=True)
    except (SyntaxError, UnicodeDecodeError):
        return  # the import tells of it
    linecache.cache[str(path)] = (len(data), None, lines, str(path))
