"""The numbers of a spec: how they are written, and what they say where none is."""

from __future__ import annotations

ALL = 0
"""Stands for the word `all` in a spec until `ClusterSpec.resolve` replaces it."""
MOST = 9999
COUNT = r"[1-9][0-9]{0,3}"
NUMBER = rf"(?:{COUNT}|all)"

USUAL = {"W": 1, "R": 1, "P": 0}
"""What each letter of a form is where it is not written: workers, replicas of each
worker, parameter servers."""


def parse_number(text: str) -> int:
    """A number of a spec; see `ALL`."""
    return ALL if text == "all" else int(text)


def spell_number(number: int) -> str:
    """A number as a spec has it."""
    return "all" if number == ALL else str(number)
