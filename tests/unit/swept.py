"""Parameters of tests that are run with the sweeps."""

from __future__ import annotations

from typing import Any

import pytest


def swept(*values: Any) -> list[Any]:
    """Further examples of what the first ones show, for the sweeps."""
    return [pytest.param(value, marks=pytest.mark.sweep) for value in values]
