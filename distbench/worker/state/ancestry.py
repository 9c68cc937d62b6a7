"""What an object is by the full names of its classes, of which none is imported."""

from __future__ import annotations

from typing import Any


def list_ancestry(candidate: Any) -> dict[str, type]:
    """The classes that an object derives from by their full names, its own first.

    The full name: a user's own class may be called as a framework's is.
    """
    return {f"{c.__module__}.{c.__qualname__}": c for c in type(candidate).__mro__}
