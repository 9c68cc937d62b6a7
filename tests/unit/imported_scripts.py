"""The modules of `scripts/`, for tests of what they compute."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
NIGHTLY = (
    "measured",
    "own_optimizers",
    "nightly_plan",
    "nightly_options",
    "nightly_jobs",
    "nightly",
)
"""Those of a night."""


@contextmanager
def import_scripts(*names: str) -> Iterator[dict[str, Any]]:
    """Import scripts as they import each other: in an order in which each is free.

    Names as `measured` would stand in the way of others, so they go at the end.
    """
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(SCRIPTS))
        for name in names:
            sys.modules.pop(name, None)


def share_scripts(*names: str) -> Any:
    """A fixture of those scripts, for all tests of a module."""

    @pytest.fixture(scope="module")
    def scripts() -> Iterator[dict[str, Any]]:
        with import_scripts(*names) as found:
            yield found

    return scripts
