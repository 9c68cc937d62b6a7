"""A target's file is read, and not run: what can be told of it before tasks start."""

from __future__ import annotations

import ast
import re
import traceback
import warnings
from pathlib import Path

from distbench.errors import BadInputError, find_near, shorten, suggest

_MESSAGE_LENGTH = 600
_SHOWN = 5
_HIDDEN = re.compile(
    rb"\b(globals|vars|locals|exec|eval|setattr|modules)\b"
    rb"|__(dict|getattr|builtins|import)__|__name__(?!\s*==)"
    rb"|import\s*\(?\s*\*"
)
"""By what a module may have names that its text does not hold."""


def list_names(file: Path) -> list[str]:
    """The functions and classes that a file defines on its top level."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [item.name for item in body if isinstance(item, kinds)]


def suggest_name(name: str, names: list[str], place: str = "") -> str:
    """What to add to a message on an attribute that is not there.

    Args:
        name: The attribute.
        names: What there is.
        place: What stands before each in the message: `file.py:`.
    """
    public = [name for name in names if not name.startswith("_")]
    if hint := suggest(f"{place}{near}" for near in find_near(name, public)):
        return hint
    shown = [f"'{place}{name}'" for name in public[:_SHOWN]]
    if len(public) > _SHOWN:
        shown.append("...")
    return f" There is {', '.join(shown)}." if shown else ""


def check_source(path: str, attribute: str) -> None:
    """Refuse a file that cannot be loaded, or has no such attribute for certain.

    Nothing is said of what only running it tells: starting tasks takes seconds, and a
    mistype need not wait for them.

    Args:
        path: The file.
        attribute: Dotted name in it.

    Raises:
        BadInputError: It is no Python, or nothing in it can have the name.
    """
    label = f"Target '{path}:{attribute}' could not be loaded: "
    try:
        source = Path(path).read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise BadInputError(f"{label}{describe_syntax_error(error)}") from None
    except (OSError, ValueError, RecursionError, MemoryError):
        return  # who loads it tells why it cannot be
    name = attribute.partition(".")[0]
    if not name.isascii() or _HIDDEN.search(source):
        return
    if re.search(rb"\b" + name.encode() + rb"\b", source):
        return
    raise BadInputError(
        f"{label}'{path}' has no attribute '{name}'."
        f"{suggest_name(name, list_names(Path(path)))}"
    )


def describe_syntax_error(error: SyntaxError) -> str:
    """What is wrong with a file, and where, in one line."""
    # The source comes before the words. Of a file that is no text it names no place.
    lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
    place = f", in {error.filename} line {error.lineno}" if error.filename else ""
    return f"{shorten(lines[-1], _MESSAGE_LENGTH)}{place}"
