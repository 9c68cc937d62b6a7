"""A subject is loaded, which runs the user's code: only workers do it."""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any

from distbench.errors import (
    BadInputError,
    find_near,
    list_members,
    read_message,
    shorten,
    suggest,
)
from distbench.pickling import is_installed
from distbench.target import TargetRef
from distbench.target.carried import import_file
from distbench.target.reading import describe_syntax_error, list_names, suggest_name

_MESSAGE_LENGTH = 600
_LATE = re.compile(r"after (being )?initializ|at program startup")
"""How TensorFlow says that devices, threads and collectives are settled already."""


class LoadError(BadInputError):
    """What runs as a subject is loaded raised; `__cause__` is what it raised.

    Attributes:
        is_own: Whether the user's code did, and not for what a node lacks.
    """

    def __init__(self, message: str, *, is_own: bool) -> None:
        super().__init__(message)
        self.is_own = is_own


def load_target(ref: TargetRef) -> Any:  # the subject may be anything
    """Load the subject. Runs the user's code; only workers call it.

    Raises:
        LoadError: The import failed; the message names what failed and the user's
            line, without our own frames.
        BadInputError: The attribute is missing.
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


def describe_user_error(error: BaseException) -> str:
    """An exception of the user's code in one line, with the last line of theirs."""
    if isinstance(error, SyntaxError):
        return describe_syntax_error(error)
    words = ["".join(traceback.format_exception_only(error)).strip()]
    words += [describe_user_error(member) for member in list_members(error)]
    text = shorten(" ".join("; ".join(words).split()), _MESSAGE_LENGTH)
    frames = _list_frames(error)
    if not frames:
        return text
    # The user's own line says more than the library's that it called.
    own = [frame for frame in frames if not is_installed(frame.filename)] or frames
    last = own[-1]
    where = f"{last.filename} line {last.lineno}"
    return f"{text}, at {where}" + (f": `{last.line}`" if last.line else "")


def _list_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of an exception, without the bench's and those of an import."""
    ours = str(Path(__file__).parents[1])
    hidden = (ours, str(Path(importlib.__file__).parent), "<frozen importlib")
    return [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(hidden)
    ]


def _get_attribute(ref: TargetRef, value: Any, holder: str, name: str) -> Any:
    if hasattr(value, name):
        return getattr(value, name)
    public = [n for n in dir(value) if not n.startswith("_")]
    near = suggest(find_near(name, public))
    file = getattr(value, "__file__", None)
    # What a module imports was hardly meant, unless it is as good as named.
    hint = near or suggest_name(name, list_names(Path(file or "")) if file else [])
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
    except BaseException as error:  # the user's code
        stays = _tell_what_stays(ref, error)
        # One device has all modules, so it is a node that lacks one.
        lacks = bool(stays) or isinstance(error, ImportError)
        raise LoadError(
            f"Target '{ref.describe()}' could not be loaded: "
            f"{describe_user_error(error)}{_suggest_module(ref, error)}"
            f"{_tell_where_looked(ref, error)}"
            f"{stays}{_tell_what_runs(error)}{_tell_what_ends(error)}",
            is_own=bool(_list_frames(error)) and not lacks,
        ) from error


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


def _tell_where_looked(ref: TargetRef, error: BaseException) -> str:
    """Where a target's own module is not, and how a file would be named."""
    is_its_own = isinstance(error, ModuleNotFoundError) and f"{ref.module}.".startswith(
        f"{error.name}."
    )
    if ref.kind != "import" or not is_its_own:
        return ""
    folders = " and ".join(map(repr, ref.search_path))
    return (
        f". It was looked for in {f'{folders} and ' if folders else ''}what is "
        "installed. Expected package.module:attribute, or path/to/file.py:attribute "
        "for a file elsewhere."
    )


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
