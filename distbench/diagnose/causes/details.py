"""What is said of several variables in one finding."""

from __future__ import annotations

import re
from collections.abc import Sequence

_TOLD_APART = 3
"""So many variables are told apart in one finding."""
_LINE = re.compile(r"(?<= at )((?:(?! at )[^`])+:\d+), `[^`]*`")
"""A line of the program, behind its place."""


def join_details(told: Sequence[tuple[str, str]]) -> str:
    """What happened to all, or to the first ones if it differs.

    Args:
        told: What happened, and to which variable.
    """
    owners: dict[str, list[str]] = {}
    for detail, name in told:
        owners.setdefault(detail, []).append(name)
    if len(owners) == 1:
        return told[0][0]
    parts = []
    for detail, names in owners.items():
        others = len(set(names)) - 1
        more = f" (and {others} more)" if others else ""
        parts.append(f"of '{names[0]}'{more} {detail}")
    left = len(parts) - _TOLD_APART
    words = "; ".join(parts[:_TOLD_APART]) + f"; and {left} more" * (left > 0)
    return _quote_once(words)


def _quote_once(words: str) -> str:
    """A line of the program is quoted where it is named first."""
    quoted: set[str] = set()

    def quote(found: re.Match[str]) -> str:
        line = found[0]
        is_known = line in quoted
        quoted.add(line)
        return found[1] if is_known else line

    return _LINE.sub(quote, words)
