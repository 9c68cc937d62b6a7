"""AutoGraph in a fork: what it looks at is copied."""

from __future__ import annotations

from typing import Any

from tensorflow.python.autograph.pyct import inspect_utils


def leave_modules_alone() -> None:
    """Have AutoGraph not look through all modules for each function it converts.

    It compares the file of every module with that of the function, to read the lines of
    a source anew that a zipped program may have under another module's name. The lines
    are read by the function's file all the same. But looking at a module counts a
    reference to it: in a fork of a process that has 4,000 of them this copies 17 MiB.
    What that saves, scripts/benchmark measures.
    """
    inspect_utils._fix_linecache_record = _trust_file


def _trust_file(_: Any) -> None:
    """Nothing has to be done."""
