"""What a report may take the place of: an earlier one, and nothing that is anybody's.

Names are mistyped, and completed by a shell: `--json my_optimizer.py` is written as
easily as `--json my_optimizer.json`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from distbench.errors import BadInputError
from distbench.report.files import STDOUT, check_place, is_device

_SOURCE = ".py"
_BEGINNING = 1 << 16
"""So many bytes of a file tell what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What is written to a file, and how an earlier one is known.

    Attributes:
        name: What messages call it.
        pattern: Fits the beginning of its text.
        is_source: Whether it is Python.
    """

    name: str
    pattern: re.Pattern[str]
    is_source: bool = False


VERDICT = Kind(
    name="verdict",
    pattern=re.compile(r'\s*\{\s*"schema"\s*:\s*"distbench/verdict/'),
)
PAGE = Kind(
    name="page of a report",
    pattern=re.compile(
        r'\s*<!DOCTYPE html>.*?<meta name="generator" content="distbench">', re.DOTALL
    ),
)
SUITE = Kind(
    name="JUnit XML",
    pattern=re.compile(r'\s*<\?xml[^>]*>\s*<testsuites>\s*<testsuite name="distbench"'),
)
MATRIX = Kind(
    name="matrix of a selftest",
    pattern=re.compile(r'\s*\{\s*"schema"\s*:\s*"distbench/selftest/'),
)
SCRIPT = Kind(
    name="script of 'distbench repro'",
    pattern=re.compile(r"#[^\n]*\n# Exits with 1 if "),
    is_source=True,
)


def check_report(path: Path, kind: Kind, taken: Mapping[str, Path]) -> None:
    """Refuse a report's place before anything is run, or taken away there.

    Args:
        path: Where the report is to go.
        kind: What it is.
        taken: Files that the same command reads, by what messages call them.

    Raises:
        BadInputError: The file cannot be written there, or is not to be lost.
    """
    check_place(path)
    if path == STDOUT or is_device(path):
        return
    place = path.resolve()
    for what, file in taken.items():
        if place == file.resolve():
            raise BadInputError(
                f"'{path}' is {what}, which a {kind.name} would replace. Expected a "
                "file of its own."
            )
    if _SOURCE in (path.suffix, place.suffix) and not kind.is_source:
        raise BadInputError(
            f"'{path}' is the name of Python source, which a {kind.name} would "
            f"replace. Expected a name that does not end in '{_SOURCE}'."
        )
    if path.exists() and not _is_earlier(path, kind):
        raise BadInputError(
            f"'{path}' exists, and is no earlier {kind.name} that another may replace. "
            "Give another name, or remove the file."
        )


def check_own_files(files: Collection[Path]) -> None:
    """Raise BadInputError for two reports of one command that have the same file."""
    if len({file.resolve() for file in files}) < len(files):
        raise BadInputError(
            "Each report needs a file of its own. "
            f"Received: {', '.join(map(str, files))}."
        )


def _is_earlier(path: Path, kind: Kind) -> bool:
    """Whether a file is of a kind, or empty as a name that was made beforehand."""
    try:
        with path.open("rb") as file:
            text = file.read(_BEGINNING).decode("utf-8", errors="replace")
    except OSError:
        return False  # nobody can tell
    return not text.strip() or kind.pattern.match(text) is not None
