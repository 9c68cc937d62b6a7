"""Wildcards in ids of scenarios."""

from __future__ import annotations

import re


def fits(pattern: str, text: str) -> bool:
    """Whether `*` and `?` in a pattern can stand for what a text has there.

    Brackets stand for themselves, since ids of tests have them.
    """
    wild = {"*": ".*", "?": "."}
    parts = (wild.get(character, re.escape(character)) for character in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None
