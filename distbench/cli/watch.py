"""Checks again whenever a file of the target's is saved.

What takes most of a first check, TensorFlow's import, is over by then: fork servers
live as long as this process. Each check has fresh processes all the same.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from distbench.cli.outcome import ENDED_BY_SIGNAL, run_command, say
from distbench.launch.spares import Spares
from distbench.target import TargetRef

_LOOK_S = 0.05
_SHARE = 10
"""A large folder is looked at for this part of the time at most."""
_LEFT_OUT = ("__pycache__", "node_modules", "site-packages")

Stamp = dict[Path, tuple[int, int]]


def check_on_save(target: TargetRef, check: Callable[[], int], spares: Spares) -> int:
    """Check, and check again after each change, until Ctrl-C or a signal ends it.

    Args:
        target: Whose files count: all of Python in its file's folder or its package.
        check: Runs one check. What it raises is told, and the next one may mend it.
        spares: Where tasks wait for the next check.

    Returns:
        The exit code of the last check, or that of the signal.
    """
    place = find_sources(target)
    while True:
        # What changes while a check runs is seen after it.
        before = read_stamp(place)
        code = run_command(check)
        if code > ENDED_BY_SIGNAL:
            return code
        try:
            say(f"waiting for a change in {place}; Ctrl-C ends this")
            spares.fill()
            _wait_for_change(place, before, spares)
        except KeyboardInterrupt:
            return code


def _wait_for_change(place: Path, before: Stamp, spares: Spares) -> None:
    while True:
        spares.end_old()
        begin_s = time.perf_counter()
        if read_stamp(place) != before:
            return
        time.sleep(max(_LOOK_S, _SHARE * (time.perf_counter() - begin_s)))


def find_sources(target: TargetRef) -> Path:
    """The folder, or the one file, where the target's code is."""
    if target.kind == "file":
        return Path(target.path).parent
    folder = Path(target.search_path[0])
    top = target.module.partition(".")[0]
    for place in (folder / top, folder / f"{top}.py"):
        if place.exists():
            return place
    spec = importlib.util.find_spec(top)
    if spec is None or spec.origin is None:
        return folder
    origin = Path(spec.origin)
    return origin.parent if origin.name == "__init__.py" else origin


def read_stamp(place: Path) -> Stamp:
    """When each Python file in a place was changed, in ns, and its size in bytes."""
    stamp = {}
    for path in _list_files(place):
        try:
            found = path.stat()
        except OSError:
            continue  # it was there a moment ago: editors write a file anew
        stamp[path] = found.st_mtime_ns, found.st_size
    return stamp


def _list_files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
    for folder, names, files in os.walk(place):
        names[:] = [n for n in names if n[0] != "." and n not in _LEFT_OUT]
        yield from (Path(folder, name) for name in files if name.endswith(".py"))
