"""Waits that the docs state are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from distbench.agent.wire import GONE_S, SEND_S

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("engines.md", f"notices within about {GONE_S} s, the agent's"),
        ("engines.md", f"the agent's within about {SEND_S} s"),
        ("architecture.md", f"finds out within some {GONE_S} s and the agent's"),
        ("architecture.md", f"the agent's within some {SEND_S} s"),
    ],
)
def test_how_soon_a_silent_machine_is_noticed(page: str, words: str) -> None:
    assert words in (DOCS / page).read_text()
