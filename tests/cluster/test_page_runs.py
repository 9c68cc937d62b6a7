"""What the documentation shows is what comes out: every code block of it is run."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from page_runs import run_page
from pages import PAGES, name_page, read_blocks

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

_ELSEWHERE = ("not run", "part of", "fragment")


def has_something_to_run(page: Path) -> bool:
    return any(
        block.find_mark("printed by")
        or (
            block.language in ("python", "console")
            and not any(map(block.find_mark, _ELSEWHERE))
        )
        for block in read_blocks(page)
    )


@pytest.mark.parametrize(
    "page", [page for page in PAGES if has_something_to_run(page)], ids=name_page
)
def test_the_blocks_of_a_page_do_what_it_says(page: Path) -> None:
    # A table breaks the name of a file in two where it is wider than the table.
    with tempfile.TemporaryDirectory(prefix="page") as folder:
        assert run_page(page, Path(folder).resolve()) > 0
