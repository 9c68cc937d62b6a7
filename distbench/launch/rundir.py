"""The folder of one run, and the name of every file in it."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path

from distbench.cluster import Task
from distbench.errors import ClusterError
from distbench.escape import cut_name
from distbench.launch.closing import Closing
from distbench.launch.process import start_program

_HEIR = (
    # Waits for a line or the end of its input. Tasks may still write for a moment then,
    # and may have left folders that let nothing go.
    'read -r _; n=0; until rm -rf -- "$0" 2>/dev/null; do '
    "n=$((n + 1)); [ $n -lt 50 ] || exit 1; "
    'find "$0" -type d ! -perm -700 -exec chmod u+rwx {} ";"; sleep 0.2; done'
)
"""A shell that removes a folder when its bench is gone, however that came about."""
_HEIR_S = 15.0


def tell_unused() -> str:
    """That TMPDIR is passed over, as Python passes over what cannot be written."""
    wanted = os.environ.get("TMPDIR")
    try:
        taken = tempfile.gettempdir()
    except FileNotFoundError:
        return ""  # whoever makes a folder is told
    if not wanted or Path(wanted).resolve() == Path(taken).resolve():
        return ""
    return (
        f"TMPDIR names '{wanted}', where no file can be written: the run's files are "
        f"in '{taken}'"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFiles:
    """The files of one group of tasks: a run may start several, one after another."""

    folder: Path

    def name_log(self, task: Task) -> Path:
        """Where a task's standard output and error go."""
        return self.folder / "logs" / f"{task}.log"

    def name_stacks(self, task: Task) -> Path:
        """Where a task writes its Python stacks when asked to."""
        return self.folder / "stacks" / f"{task}.txt"

    def name_notes(self, task: Task) -> Path:
        """Where a task takes down what it does."""
        return self.folder / "notes" / str(task)

    @property
    def scratch(self) -> Path:
        """The tasks' own temporary folder: what a task leaves there goes with it."""
        return self.folder / "tmp"


class RunDirectory(Closing):
    """A private temporary folder (mode 0700) that is removed when it is closed.

    Or forgotten, or when its process dies, be it by SIGKILL: an heir sees to that.

    Attributes:
        path: The folder.
    """

    def __init__(self, base: Path | None = None) -> None:
        """Make the folder.

        Args:
            base: Where to make it; by default the system's temporary folder.

        Raises:
            ClusterError: No folder can be made there, or tasks would not find it.
        """
        try:
            _check_name(Path(tempfile.gettempdir() if base is None else base))
            self.path = Path(tempfile.mkdtemp(prefix="distbench-", dir=base)).absolute()
        except OSError as error:
            where = f"'{base}'" if base else "the system's temporary folder"
            raise ClusterError(
                f"The run needs a folder in {where}, which cannot be written: {error}. "
                "Set TMPDIR to a folder that you can write to."
            ) from error
        self._groups = itertools.count(1)
        try:
            heir = _start_heir(self.path)
        except BaseException:
            self.path.rmdir()
            raise
        self._finalizer = weakref.finalize(
            self, _remove_folder, self.path, heir, os.getpid()
        )

    def make_folder(self, name: str) -> Path:
        """A subfolder for the caller's own files, made if it is not there."""
        # It may hold the name of a function, with letters that the system lacks.
        plain = name.encode("ascii", "xmlcharrefreplace").decode()
        folder = self.path / cut_name(plain)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def add_group(self) -> GroupFiles:
        """Make the folders for one more group's logs, stacks, notes and own files."""
        folder = self.path / f"group-{next(self._groups)}"
        for name in ("logs", "stacks", "notes", "tmp"):
            (folder / name).mkdir(mode=0o700, parents=True)
        return GroupFiles(folder=folder)

    def close(self) -> None:
        """Remove the folder with all that is in it."""
        self._finalizer()


def _check_name(base: Path) -> None:
    """Refuse a place that TensorFlow cannot name: it takes all paths for UTF-8."""
    if os.fsencode(base) != str(base).encode("utf-8", errors="replace"):
        raise ClusterError(
            f"The run needs a folder in {str(base)!r}, a name that is not UTF-8 to "
            f"Python ({sys.getfilesystemencoding()} here), so TensorFlow cannot use "
            "it. Set TMPDIR to a folder with an ASCII name, or PYTHONUTF8=1."
        )


def _start_heir(path: Path) -> subprocess.Popen[bytes]:
    return start_program(
        ["/bin/sh", "-c", _HEIR, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        # What is sent to the bench's group, as Ctrl-C is, is not meant for it.
        start_new_session=True,
    )


def _remove_folder(path: Path, heir: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:
        return  # a fork of the bench must not remove the bench's folder
    shutil.rmtree(path, ignore_errors=True)
    # What a task's grandchild wrote meanwhile is the heir's. A fork of the bench may
    # hold the pipe open, so its end is not enough.
    try:
        heir.communicate(b"\n", timeout=_HEIR_S)
    except subprocess.TimeoutExpired:
        heir.kill()
        heir.wait()
