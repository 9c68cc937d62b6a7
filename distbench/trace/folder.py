"""A folder with one trace in parts: one for each process and step, joined on reading.

A part is written as soon as its step has ended, so what a job recorded before it died
can be read. One part lists the variables that it knows of; later ones may know more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from distbench.errors import BadInputError
from distbench.trace import Trace, VariableInfo, merge_traces
from distbench.trace.files import SCHEMA, read_trace

_BETWEEN = "."
_LISTED = 6
_DEEPEST = 4
"""Folders between one that holds verdicts' traces and a trace."""
_LOOKED_AT = 10_000
"""Files and folders after which no trace is looked for any more."""


def name_part(task: str, step: int, kind: str = "step") -> str:
    """Stem of the files with what a task saw of a step."""
    return f"{task}{_BETWEEN}{kind}-{step:06d}"


def find_parts(folder: Path, task: str = "") -> list[str]:
    """Stems of the parts in a folder, of one task or of all, steps in their order."""
    beginning = f"{task}{_BETWEEN}" if task else ""
    return sorted(
        path.stem
        for path in folder.glob("*.json")
        if path.name.startswith(beginning) and path.with_suffix(".npz").is_file()
    )


def read_folder(folder: Path) -> Trace:
    """The trace in a folder.

    Raises:
        BadInputError: There is none, or its parts do not belong together.
    """
    stems = find_parts(folder) if folder.is_dir() else []
    parts = {stem: read_trace(folder, stem) for stem in stems}
    if not parts:
        raise _make_missing(folder)
    replicas = {part.replicas for part in parts.values()}
    if len(replicas) > 1:
        raise BadInputError(
            f"'{folder}' holds parts of several runs. Expected: one number of "
            f"replicas. Received: {', '.join(map(str, sorted(replicas)))}. Give each "
            "run a folder of its own."
        )
    tasks: dict[str, list[Trace]] = {}
    for stem, part in parts.items():
        tasks.setdefault(stem.partition(_BETWEEN)[0], []).append(part)
    return merge_traces(folder.name, [_join_steps(part) for part in tasks.values()])


def _join_steps(parts: Iterable[Trace]) -> Trace:
    """One task's parts: variables in the order in which they came into being."""
    known: dict[str, VariableInfo] = {}
    parts = list(parts)
    for part in parts:
        known.update({v.path: v for v in part.variables})
    order = {"variable": 0, "slot": 1, "iterations": 1}
    variables = tuple(sorted(known.values(), key=lambda v: order[v.role]))
    return merge_traces(
        parts[-1].name, [replace(part, variables=variables) for part in parts]
    )


def _make_missing(folder: Path) -> BadInputError:
    found = sorted({path.parent for path in _list_near(folder) if _is_part(path)})
    near = [str(path) for path in found[:_LISTED]]
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    advice = (
        f"There are traces in {', '.join(near)}{more}."
        if near
        else "distbench.record and 'distbench check --keep' write some."
    )
    return BadInputError(
        f"'{folder}' holds no trace. Expected: a folder with the .json and .npz files "
        f"of one. {advice}"
    )


def _list_near(folder: Path) -> Iterator[Path]:
    """JSON files in the folders of a verdict's traces, if that is what it is.

    They lie no deeper, and a folder of anything else may be a whole disk.
    """
    entries = 0
    for parent, folders, files in os.walk(folder):
        entries += len(folders) + len(files)
        if entries > _LOOKED_AT:
            return
        if len(Path(parent).relative_to(folder).parts) == _DEEPEST:
            folders.clear()
        yield from (Path(parent, name) for name in files if name.endswith(".json"))


def _is_part(path: Path) -> bool:
    try:
        return bool(json.loads(path.read_text("utf-8")).get("schema") == SCHEMA)
    except (OSError, ValueError, AttributeError):
        return False
