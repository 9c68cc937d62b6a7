"""Runs of large models, of which not all numbers are held."""

from __future__ import annotations

import pytest

from distbench.compare import comparison


@pytest.fixture(params=[False, True], ids=["all-held", "first-held"])
def limit_held(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large model the numbers of later steps are let go."""
    if request.param:
        monkeypatch.setattr(comparison, "_MOST_HELD_BYTES", 0)
