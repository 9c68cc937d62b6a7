"""Subjects on their way to the workers: by import path, by file or pickled by value."""

from __future__ import annotations

import ast
import difflib
import importlib
import json
import os
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Literal

from distbench.carried import import_file
from distbench.errors import BadInputError, read_message, shorten
from distbench.machine import find_current_folder
from distbench.pickling import is_installed, pickle_by_value

_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_MESSAGE_LENGTH = 600
_LATE = re.compile(r"after (being )?initializ|at program startup")
"""How TensorFlow says that devices, threads and collectives are settled already."""
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


def load_target(ref: TargetRef) -> Any:  # the subject may be anything
    """Load the subject. Runs the user's code; only workers call it.

    Raises:
        BadInputError: The import failed or the attribute is missing; the message
            names what failed and the user's line, without our own frames.
    """
    for folder in reversed(ref.search_path):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    # As of a script that is called without arguments; a task's own are not for it.
    sys.argv = [ref.path or ref.module]
    if ref.kind == "pickle":
        import pickle

        return _guard(ref, lambda: pickle.loads(Path(ref.path).read_bytes()))
    if ref.kind == "file":
        module = _guard(ref, lambda: _import_file(ref))
    else:
        module = _guard(ref, lambda: importlib.import_module(ref.module))
    value: Any = module
    holder = ref.module or ref.path
    for part in ref.attribute.split("."):
        value = _guard(ref, partial(_get_attribute, ref, value, holder, part))
        holder = part
    return value


def target_to_json(ref: TargetRef) -> str:
    """The reference as a JSON document."""
    return json.dumps(asdict(ref))


def target_from_json(text: str) -> TargetRef:
    """Read a reference back."""
    document = json.loads(text)
    return TargetRef(**{**document, "search_path": tuple(document["search_path"])})


def describe_user_error(error: BaseException) -> str:
    """An exception of the user's code in one line, with the last line of theirs."""
    lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
    if isinstance(error, SyntaxError):
        # The source comes before the words. Of a file that is no text it names none.
        place = f", in {error.filename} line {error.lineno}" if error.filename else ""
        return f"{shorten(lines[-1], _MESSAGE_LENGTH)}{place}"
    text = shorten(" ".join(" ".join(lines).split()), _MESSAGE_LENGTH)
    ours = str(Path(__file__).parent)
    hidden = (ours, str(Path(importlib.__file__).parent), "<frozen importlib")
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(hidden)
    ]
    if not frames:
        return text
    # The user's own line says more than the library's that it called.
    own = [frame for frame in frames if not is_installed(frame.filename)] or frames
    last = own[-1]
    where = f"{last.filename} line {last.lineno}"
    return f"{text}, at {where}" + (f": `{last.line}`" if last.line else "")


def _get_attribute(ref: TargetRef, value: Any, holder: str, name: str) -> Any:
    if hasattr(value, name):
        return getattr(value, name)
    names = [n for n in dir(value) if not n.startswith("_")]
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f" Did you mean '{nearest[0]}'?" if nearest else ""
    raise BadInputError(
        f"Target '{ref.describe()}' could not be loaded: '{holder}' has no attribute "
        f"'{name}'.{hint}"
    )


def _import_file(ref: TargetRef) -> ModuleType:
    return import_file(Path(ref.path), ref.copy, is_kept=ref.is_kept)


def _guard(ref: TargetRef, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except BadInputError:
        raise
    except BaseException as error:  # noqa: BLE001  # the user's code
        raise BadInputError(
            f"Target '{ref.describe()}' could not be loaded: "
            f"{describe_user_error(error)}{_suggest_module(ref, error)}"
            f"{_tell_what_stays(ref, error)}{_tell_what_runs(error)}"
            f"{_tell_what_ends(error)}"
        ) from None


def _suggest_module(ref: TargetRef, error: BaseException) -> str:
    """How to name a module of a package, whose relative imports need the package."""
    if ref.kind == "pickle" or "relative import" not in read_message(error):
        return ""
    file = Path(ref.path or f"{Path(*ref.search_path, *ref.module.split('.'))}.py")
    parents = list(takewhile(lambda p: (p / "__init__.py").is_file(), file.parents))
    if not parents:
        return ""
    names = [folder.name for folder in reversed(parents)]
    name = ".".join([*names, file.stem])
    folder = parents[-1].parent
    return f". Name it '{name}:{ref.attribute}', from the folder '{folder}'."


def _tell_what_stays(ref: TargetRef, error: BaseException) -> str:
    """That a file was sent alone, where it misses what lies beside it."""
    if (
        not ref.copy
        or ref.is_kept
        or not isinstance(error, (ImportError, FileNotFoundError))
    ):
        return ""
    return (
        ". Only the file itself was sent to the nodes: what it imports or reads has to "
        "be there already. Install it on all nodes, or name a file in a folder that "
        "all of them see."
    )


def _tell_what_runs(error: BaseException) -> str:
    """That TensorFlow is up, where a module wants to settle how it comes up."""
    if not isinstance(error, RuntimeError) or not _LATE.search(read_message(error)):
        return ""
    return (
        ". The bench has started TensorFlow by then: do this where the script starts "
        "(`if __name__ == '__main__':`), not as the module is imported."
    )


def _tell_what_ends(error: BaseException) -> str:
    """That a module is imported, where it reads a command line and ends for it."""
    if not isinstance(error, SystemExit):
        return ""
    import argparse

    # A parser has told what it lacks on standard error, and its exception is a number.
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    told = [
        frame.f_locals["message"]
        for frame in frames
        if frame.f_code is argparse.ArgumentParser.error.__code__
    ]
    lacks = f" ({told[-1]})" if told else ""
    return (
        f"{lacks}. The bench imports it, without arguments: parse them, and end the "
        "process, where the script starts (`if __name__ == '__main__':`)."
    )


def _find_file(text: str, place: Path, folder: Path) -> Path:
    path = folder / place
    if path.suffix == ".py" and path.is_file():
        return path.resolve()
    if path.is_dir():
        problem = f"'{path}' is a folder"
    elif path.is_file():
        problem = f"'{path}' does not end in '.py'"
    else:
        problem = f"there is no file '{path}'"
    near = sorted(p.name for p in path.parent.glob("*.py")) if not path.is_dir() else []
    nearest = difflib.get_close_matches(path.name, near, n=1, cutoff=0.5)
    hint = f" Did you mean '{place.parent / nearest[0]}'?" if nearest else ""
    if not path.parent.is_dir():
        hint = f" There is no folder '{path.parent}' either."
    raise BadInputError(f"Target {text!r}: {problem}. Expected {_FORMS}.{hint}")


def _suggest_attribute(place: str, folder: Path) -> str:
    """What the file defines on its top level, read and not run."""
    path = folder / place
    if not place.endswith(".py") or not path.is_file():
        return ""
    try:
        body = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError):
        return ""
    names = [n.name for n in body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    public = [f"'{place}:{name}'" for name in names if not name.startswith("_")]
    return f" Did you mean one of {', '.join(public[:5])}?" if public else ""
