"""Marks everything here as what it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes hangs on what else the machine does.
settings.register_profile("sweeps", deadline=None)
settings.load_profile("sweeps")

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker("sweep")
