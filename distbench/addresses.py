"""Where objects lie in memory, in what is told of them."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"(?<= at )0x[0-9a-f]+")
"""As Python shows objects; a number that somebody writes so has no `at` before it."""


def strip_addresses(text: str) -> str:
    """A text without addresses, which differ from process to process."""
    return _ADDRESS.sub("", text)
