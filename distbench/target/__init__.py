"""Subjects on their way to the workers: by import path, by file or pickled by value."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Literal

from distbench.errors import BadInputError, find_near, suggest
from distbench.machine import find_current_folder
from distbench.pickling import pickle_by_value
from distbench.target.reading import list_names

_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_FORMS = "'package.module:attribute' or 'path/to/file.py:attribute'"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRef:
    """Where a subject is found; plain data, nothing is imported.

    Attributes:
        kind: `import`, `file` or `pickle`.
        module: Dotted name of the module, for `import`.
        path: Absolute path of the Python file, or of the pickle.
        attribute: Dotted name inside the module; the label, for `pickle`.
        search_path: Folders to put on `sys.path` before loading.
        copy: A copy of the file that travels with the run, for where `path` is not.
        is_kept: The copy counts where `path` is too: whoever saves the file while it
            is checked has no task load another one than those before it.
    """

    kind: Literal["import", "file", "pickle"]
    module: str = ""
    path: str = ""
    attribute: str = ""
    search_path: tuple[str, ...] = ()
    copy: str = ""
    is_kept: bool = False

    def describe(self) -> str:
        """The label: what the user would write to name the subject."""
        if self.kind == "pickle":
            return self.attribute
        return f"{self.module or self.path}:{self.attribute}"


def parse_target(text: str, folder: Path | None = None) -> TargetRef:
    """Parse a TARGET without importing anything.

    Args:
        text: What the user wrote.
        folder: Where relative paths start and modules are looked for; the current
            folder by default.

    Raises:
        BadInputError: The text has another form, or the file does not exist.
    """
    folder = find_current_folder() / (folder or "")
    place, colon, attribute = text.strip().rpartition(":")
    if not colon:
        raise BadInputError(
            f"Target {text!r} names no attribute. Expected {_FORMS}."
            f"{_suggest_attribute(text.strip(), folder)}"
        )
    if place.endswith(":"):
        file, *names = re.split("::?", text.strip())
        raise BadInputError(
            f"Target {text!r} has two colons, as pytest names a test. Expected "
            f"{_FORMS}. Did you mean '{file}:{'.'.join(names)}'?"
        )
    if not _DOTTED.fullmatch(attribute):
        raise BadInputError(
            f"Target {text!r}: {attribute!r} is no name of an attribute. "
            f"Expected {_FORMS}."
        )
    if place.endswith(".py") or "/" in place:
        # Path.expanduser raises where there is no such user.
        path = _find_file(text, Path(os.path.expanduser(place)), folder)  # noqa: PTH111
        return TargetRef(
            kind="file",
            path=str(path),
            attribute=attribute,
            search_path=(str(path.parent),),
        )
    if not _DOTTED.fullmatch(place):
        raise BadInputError(
            f"Target {text!r}: {place!r} is neither a module nor a file. "
            f"Expected {_FORMS}."
        )
    return TargetRef(
        kind="import", module=place, attribute=attribute, search_path=(str(folder),)
    )


def write_pickled_target(subject: object, folder: Path, label: str = "") -> TargetRef:
    """Write a subject of the running process to `folder/target.pkl`, by value.

    A lambda, a local class or one from a test module that workers cannot import
    travels with its code.

    Raises:
        BadInputError: The subject holds something that cannot be pickled.
    """
    name = label or name_subject(subject)
    data = pickle_by_value(_attach_data(subject), name)
    path = folder / "target.pkl"
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)
    return TargetRef(
        kind="pickle",
        path=str(path.absolute()),
        attribute=name,
        search_path=tuple(p for p in sys.path if p and Path(p).is_dir()),
    )


def adopt_target(ref: TargetRef, folder: Path, *, is_far: bool) -> TargetRef:
    """A subject with its file in a run's folder, which travels to all its tasks.

    Args:
        ref: The subject.
        folder: The run's folder.
        is_far: Whether tasks may see no other file of this machine.
    """
    if ref.kind == "import":
        return ref
    path = folder / "subject" / ("target.py" if ref.kind == "file" else "target.pkl")
    try:
        data = Path(ref.path).read_bytes()
    except OSError:
        return ref  # who loads it tells why it cannot be read
    path.parent.mkdir()
    path.write_bytes(data)
    if ref.kind == "file":
        return replace(ref, copy=str(path), is_kept=not is_far)
    return replace(ref, path=str(path))


def _attach_data(subject: object) -> object:
    """A function together with the `data` of its module, which would stay behind."""
    module = sys.modules.get(getattr(subject, "__module__", None) or "")
    found = getattr(module, "data", None)
    if not isinstance(subject, FunctionType) or hasattr(subject, "data"):
        return subject
    if not callable(found):
        return subject
    attached = partial(subject)
    attached.data = found  # type: ignore[attr-defined]  # partials take attributes
    attached.__qualname__ = subject.__qualname__  # type: ignore[attr-defined]
    return attached


def name_subject(subject: object) -> str:
    """What to call a subject that came as an object."""
    named = getattr(subject, "__qualname__", "")
    return str(named or type(subject).__qualname__)


def target_to_json(ref: TargetRef) -> str:
    """The reference as a JSON document."""
    return json.dumps(asdict(ref))


def target_from_json(text: str) -> TargetRef:
    """Read a reference back."""
    document = json.loads(text)
    return TargetRef(**{**document, "search_path": tuple(document["search_path"])})


def _find_file(text: str, place: Path, folder: Path) -> Path:
    path = folder / place
    if path.suffix == ".py" and path.is_file():
        return path.resolve()
    if path.is_dir():
        problem = f"'{path}' is a folder"
    elif path.is_file():
        problem = f"'{path}' does not end in '.py'"
    elif path.exists():
        problem = f"'{path}' is a device or a pipe, and no file"
    else:
        problem = f"there is no file '{path}'"
    stems: list[str] = []
    if not path.exists() or path.is_file():
        stems = sorted(p.stem for p in path.parent.glob("*.py"))
    # All files of Python end alike: that is nothing in common.
    near = find_near(path.stem, stems)
    hint = suggest(str(place.parent / f"{stem}.py") for stem in near)
    if not path.parent.is_dir():
        hint = f" There is no folder '{path.parent}' either."
    raise BadInputError(f"Target {text!r}: {problem}. Expected {_FORMS}.{hint}")


def _suggest_attribute(place: str, folder: Path) -> str:
    """What the file that may be meant defines on its top level, read and not run."""
    file, name = _find_meant(place, folder)
    names = list_names(folder / file) if file else []
    if name in names:
        return f" Did you mean '{file}:{name}'?"
    public = [f"'{file}:{name}'" for name in names if not name.startswith("_")]
    return f" Did you mean one of {', '.join(public[:5])}?" if public else ""


def _find_meant(place: str, folder: Path) -> tuple[str, str]:
    """The file that a target without a colon may mean, and the name in it."""
    if place.endswith(".py"):
        return place, ""
    whole, dot, name = place.rpartition(".")
    for module, attribute in ((place, ""), (whole, name if dot else "")):
        file = f"{module.replace('.', '/')}.py"
        if _DOTTED.fullmatch(module) and (folder / file).is_file():
            return file, attribute
    return "", ""
