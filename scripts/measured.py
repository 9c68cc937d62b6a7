"""What the measuring scripts share: where they ran, and how their figures are kept."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.metadata
import json
import os
import platform
import subprocess
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from distbench.errors import count_things

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


def describe_installed() -> dict[str, str]:
    """What rows were measured with, and on what, that have a commit of their own."""
    place = {**describe_place(), "keras": importlib.metadata.version("keras")}
    del place["distbench"]
    return place


def describe_measured(document: Document) -> list[str]:
    """A paragraph on what a document's figures were measured with."""
    place = document.get("place")
    if place is None:
        return []
    elsewhere = Counter(
        _name_place({k: v for k, v in row["place"].items() if place.get(k, v) != v})
        for row in document.get("rows", ())
        if "place" in row
    )
    told = [
        f"; {count_things(count, 'row')} with {words}"
        for words, count in elsewhere.items()
        if words
    ]
    return write_paragraph(f"Measured with {_name_place(place)}{''.join(told)}.")


def _name_place(place: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in place.items())


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


def read_document(path: Path) -> dict[str, Any]:
    """Figures that are made in parts: `place`, where most rows were measured, and them.

    Each row has its own commit, and its `place` if that is another one.
    """
    if not path.exists():
        return {"place": {}, "rows": []}
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    commit = document["place"].pop("distbench", None)
    for row in document["rows"]:
        if commit is not None and "commit" not in row:
            row.setdefault("distbench", commit)
    return document


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of earlier runs, each with its place."""
    document = read_document(path)
    return [{"place": document["place"], **row} for row in document["rows"]]


def is_done(row: Mapping[str, Any], now: Mapping[str, str]) -> bool:
    """Whether a row of `read_rows` stands: not broken, nor of versions of before.

    Args:
        row: The row.
        now: What is installed now.
    """
    place = row["place"]
    is_old = any(place.get(name, now[name]) != now[name] for name in _CHECKED_WITH)
    return not is_old and row.get("status") != "error"


def name_row(row: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    """What a row is called: the values of the fields that name it."""
    return tuple(row[name] for name in names)


def find_done(
    path: Path, now: Mapping[str, str], names: Sequence[str]
) -> set[tuple[str, ...]]:
    """What the rows are called that need not be measured again."""
    return {name_row(row, names) for row in read_rows(path) if is_done(row, now)}


def gather_rows(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The document of rows that have a place each."""
    kept = [dict(row) for row in rows]
    places = Counter(json.dumps(row["place"]) for row in kept)
    place = json.loads(max(places, key=lambda one: places[one], default="{}"))
    for row in kept:
        if row["place"] == place:
            del row["place"]
    return {"place": place, "rows": kept}


def keep_rows(
    path: Path,
    rows: Iterable[Mapping[str, Any]],
    now: Mapping[str, str],
    names: Sequence[str],
    order: Iterable[str] | None = None,
) -> dict[str, Any]:
    """Put rows in the place of those that are called alike; returns the document.

    What others have written meanwhile stays: several may measure parts of one table.

    Args:
        path: The figures, which need not be there yet.
        rows: What was measured now; of none the figures stay as they are.
        now: Where.
        names: The fields that name a row.
        order: Values of the first of them, in the order of the rows; rows of others are
            left out. None leaves rows as they come.
    """
    with _lock_folder(path.parent):
        new = [{**row, "place": dict(now)} for row in rows]
        kept = {name_row(row, names): row for row in (*read_rows(path), *new)}
        if order is not None:
            ranks = {value: rank for rank, value in enumerate(order)}
            known = [name for name in kept if name[0] in ranks]
            known.sort(key=lambda name: (ranks[name[0]], *name))
            kept = {name: kept[name] for name in known}
        document = gather_rows(kept.values())
        write_figures(path, document)
    return document


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Have the figures of a folder for oneself."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


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
