"""docs/nightly.md says what the limits are, and shows what was planted."""

from __future__ import annotations

from pathlib import Path

from imported_scripts import import_scripts

NAMES = ("measured", "played_nights", "write_nightly")
PAGE = Path(__file__).parents[2] / "docs" / "nightly.md"


def test_the_limits_are_what_the_page_says() -> None:
    with import_scripts(*NAMES) as scripts:
        page = PAGE.read_text("utf-8")
        assert scripts["write_nightly"].write_parts(page, ("limits",)) == page


def test_what_was_planted_is_what_the_page_shows() -> None:
    page = PAGE.read_text("utf-8")
    told = [line for line in page.splitlines() if line.startswith(("drift:", "flaky:"))]
    assert [line.split()[2] for line in told] == [
        "mlp-adam-mwms:2x4@gpu-default",
        "embedding-adam-mwms:8@gpu-default",
        "linear-adam-ps:2+1-default",
    ]
