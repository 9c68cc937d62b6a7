"""What is told of played nights, as docs/nightly.md counts it."""

from __future__ import annotations

from pathlib import Path

from imported_scripts import import_scripts

NAMES = ("measured", "played_nights", "write_nightly")
PAGE = Path(__file__).parents[2] / "docs" / "nightly.md"


def test_the_page_counts_what_is_found_and_what_is_told_wrongly() -> None:
    with import_scripts(*NAMES) as scripts:
        page = PAGE.read_text("utf-8")
        assert scripts["write_nightly"].write_parts(page, ("drifts",)) == page
