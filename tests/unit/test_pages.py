"""The documentation: what its blocks say of themselves, and where its links lead."""

from __future__ import annotations

import re
import urllib.parse
from pathlib import Path

import pytest
from pages import (
    CODE,
    MARKS,
    PAGES,
    ROOT,
    Command,
    is_shown,
    list_anchors,
    list_blocks,
    list_links,
    name_page,
    read_anchors,
    read_blocks,
    read_commands,
)

NOT_RUN = {
    "README.md": 1,
    "docs/engines.md": 8,
    "docs/families.md": 1,
    "docs/nightly.md": 1,
    "docs/stock-optimizers.md": 1,
    "docs/third-party.md": 5,
    "docs/your-cluster.md": 2,
}
"""Blocks that no test runs, by page. Each says why; none joins them unnoticed."""

EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=name_page)


def test_a_block_has_the_comments_right_before_it() -> None:
    text = (
        "<!-- first: touch a -->\n<!-- file: b.py -->\n```python\nx\n```\n\n"
        "<!-- not run: it\n     takes hours -->\n\nA word.\n\n```console\n$ a\n```\n"
    )
    first, second = list_blocks(text)
    assert first.marks == (("first", "touch a"), ("file", "b.py"))
    assert (first.language, first.text, first.line) == ("python", "x\n", 3)
    assert second.marks == ()


def test_anchors_are_those_that_github_gives() -> None:
    text = "# One: two `c-d`\n\n## A, b\n\n## A, b\n\n```text\n# no\n```\n"
    assert list(list_anchors(text)) == ["one-two-c-d", "a-b", "a-b-1"]


def test_commands_and_what_they_print_are_told_apart() -> None:
    text = "```console\n$ one \\\n    --more\nout\n\n$ two\n$ three\nend\n```\n"
    [block] = list_blocks(text)
    assert list(read_commands(block)) == [
        Command(typed="one \\\n    --more", shown="out\n"),
        Command(typed="two", shown=""),
        Command(typed="three", shown="end"),
    ]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a  b\n c", "a b c\n", True),
        ("a b", "a b c", False),
        ("ratio 1.5", "ratio 1.6", False),
        ("a ... d", "a b c d", True),
        ("a ... e", "a b c d", False),
        ("allowed 1.78e-08", "allowed 1.8e-08", True),
        ("allowed 1.78e-08", "allowed 1.78e-07", False),
        ("from -4.747e-05", "from -4.748e-05", False),
        ("took 1.5 s", "took 12 s", True),
        ("3 passed in 1.5s", "3 passed in 12.3s", True),
        ("3 passed in 1.5s", "3 passed in 80.57s (0:01:20)", True),
        ("status  seconds\npass  1.2", "status  seconds\npass  7.0", True),
        ("status  seconds\npass  1.2", "status  seconds\nfail  1.2", False),
        ("seconds  status\n1.2 pass", "seconds  status\n1.3 pass", False),
        ("status  seconds\npass  1.2\n\n3", "status  seconds\npass  1.2\n\n4", False),
    ],
)
def test_what_is_printed_is_compared_but_for_what_a_machine_decides(
    shown, printed, same
) -> None:
    assert is_shown(shown, printed) is same


@EVERY_PAGE
def test_every_block_says_what_it_is(page: Path) -> None:
    for block in read_blocks(page):
        place = f"{name_page(page)}:{block.line}"
        if block.language.startswith("{"):  # of Sphinx, which says if it knows it
            continue
        assert block.language in (*CODE, "text", "json"), place
        assert {name for name, _ in block.marks} <= set(MARKS), place
        if block.language in ("console", "sh"):
            is_run = block.language == "console" and block.text.startswith("$ ")
            assert is_run or block.find_mark("not run"), place
        if block.language in ("ini", "yaml"):
            assert block.find_mark("file") or block.find_mark("part of"), place


@EVERY_PAGE
def test_a_block_that_is_part_of_a_file_stands_in_it(page: Path) -> None:
    for block in read_blocks(page):
        if file := block.find_mark("part of"):
            text = (page.parent / file).read_text("utf-8")
            assert block.text.strip("\n") in text, f"{name_page(page)}:{block.line}"


@EVERY_PAGE
def test_a_file_that_a_block_needs_is_linked(page: Path) -> None:
    """Whoever reads has to copy it as well, and begins on any page."""
    for block in read_blocks(page):
        for name in re.findall(r"docs/(examples/\S+)", block.find_mark("first") or ""):
            for file in (ROOT / "docs").glob(name):
                link = f"](examples/{file.name})"
                text = page.read_text("utf-8").replace("](../", "](")
                assert link in text, f"line {block.line} needs {file}"


def test_blocks_that_do_not_run_are_counted() -> None:
    counted = {
        name_page(page): sum(
            block.find_mark("not run") is not None for block in read_blocks(page)
        )
        for page in PAGES
    }
    assert {page: count for page, count in counted.items() if count} == NOT_RUN


@EVERY_PAGE
def test_no_page_has_what_a_merge_left_open(page: Path) -> None:
    lines = page.read_text("utf-8").splitlines()
    assert not [line for line in lines if line.startswith(("<<<<<<< ", ">>>>>>> "))]


@EVERY_PAGE
def test_links_lead_somewhere(page: Path) -> None:
    """Files and anchors; the tests know no network, so addresses are only addresses."""
    for link in list_links(page.read_text("utf-8")):
        path, _, anchor = urllib.parse.unquote(link).partition("#")
        if path.startswith(("https://", "http://")):
            continue
        target = (page.parent / path).resolve() if path else page
        where = f"{name_page(page)}: {link}"
        assert target.exists(), where
        assert target.is_relative_to(ROOT), where
        if anchor:
            assert anchor in read_anchors(target), where


def test_what_is_to_be_added_to_is_there() -> None:
    """Files and folders of the page on extending, and what is said to be in a file."""
    text = (ROOT / "docs/extending.md").read_text("utf-8")
    paths = re.findall(r"`([\w.-]+(?:/[\w.-]+)+)`", text)
    assert len(paths) > 40
    assert not [path for path in paths if not (ROOT / path).exists()]
    for name, path in re.findall(r"`(\w+)`\s+in\s+`([\w./-]+\.py)`", text):
        assert re.search(rf"\b{name}\b", (ROOT / path).read_text("utf-8")), name
