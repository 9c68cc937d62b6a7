"""What the measuring scripts share: where they ran, and how their figures are kept."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import platform
import subprocess
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Document = Mapping[str, Any]
"""Figures as they are kept: see `write_figures`."""
ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "measured"
"""The figures that docs/detection.md is written from."""
_PACKAGES = ("tensorflow", "tf-keras", "numpy")
_MEASURES = ("distbench", "scripts", "scenarios", "pyproject.toml")
_CHECKED_WITH = ("tensorflow", "tf-keras", "keras")
"""Packages another version of which may change a verdict."""


def describe_place() -> dict[str, str]:
    """What was measured, and on what."""
    return {
        "distbench": find_commit(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def describe_measured(document: Document) -> list[str]:
    """A paragraph on what a document's figures were measured with."""
    place = document.get("place")
    if place is None:
        return []
    words = ", ".join(f"{name} {value}" for name, value in place.items())
    return write_paragraph(f"Measured with {words}.")


def count_commits(rows: Iterable[Mapping[str, Any]]) -> str:
    """Which rows, each with the commit that it was measured by, are whose."""
    commits = Counter(row["distbench"] for row in rows)
    return ", ".join(f"{count} by distbench {name}" for name, count in commits.items())


def tell_minutes(document: Document) -> str:
    """How long a document's figures took."""
    return f"{document['seconds'] / 60:.0f} minutes"


def name_phase(phase: str) -> str:
    """A phase as pages name it."""
    return phase.replace("_", " ")


def write_paragraph(text: str) -> list[str]:
    """A paragraph of a page in lines of the usual width, and an empty line."""
    lines = textwrap.wrap(text, 88, break_long_words=False, break_on_hyphens=False)
    return [*lines, ""]


@functools.cache
def find_commit(root: Path = ROOT) -> str:
    """The commit of a checkout, as it is when this is asked for the first time.

    It ends in `-dirty` if what measures was changed since; figures and pages, which the
    scripts write, do not measure.
    """
    commit = _ask_git(root, "rev-parse", "--short", "HEAD")
    changed = _ask_git(root, "status", "--porcelain", "--", *_MEASURES)
    return (commit or "unknown") + ("-dirty" if changed else "")


def _ask_git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def read_rows(path: Path, now: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows of earlier runs, if they were measured with what is installed now.

    Args:
        path: The figures, which need not be there yet.
        now: Versions, as their `place` has them.
    """
    if not path.exists():
        return []
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    if any(document["place"].get(name) != now[name] for name in _CHECKED_WITH):
        print(f"{path}: measured with other versions, all of it is run again")
        return []
    return list(document["rows"])


def write_figures(path: Path, document: Document) -> None:
    """Write a document, one line for each entry of its lists: a diff can be read."""
    parts = []
    for name, value in document.items():
        if isinstance(value, list) and value:
            rows = ",\n  ".join(json.dumps(row) for row in value)
            parts.append(f" {json.dumps(name)}: [\n  {rows}\n ]")
        else:
            parts.append(f" {json.dumps(name)}: {json.dumps(value)}")
    text = "{\n" + ",\n".join(parts) + "\n}\n"
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
