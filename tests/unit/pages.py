"""The documentation as it is written: its code blocks, what they say of themselves, and
its links.

A block of code runs as a reader would run it. What is to be known for that, and is of
no use to the reader, stands in comments before the block:

    <!-- file: my_optimizer.py -->    the block is this file, in the page's folder
    <!-- part of: examples/x.py -->   the block stands word for word in this file
    <!-- printed by: COMMAND -->      the block is what the command prints
    <!-- fragment: NAME -->           the block is no program: a test of its own runs it
    <!-- first: COMMAND -->           this runs before the block, unseen
    <!-- not run: REASON -->          the block does not run here

A Python block without any of these runs by itself; one of `console` shows commands
after `$ `, each with what it prints below it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
MARKS = ("file", "part of", "printed by", "fragment", "first", "not run")
CODE = ("python", "console", "sh", "ini", "yaml")
"""Languages of blocks that do something; others are `text` and `json`."""

_COMMENT = re.compile(r"<!-- (?P<name>[a-z ]+): (?P<value>.+?) -->", re.DOTALL)
_PARSER = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block.

    Attributes:
        language: What its fence says.
        text: What is in it.
        line: Number of the line of its fence.
        marks: Name and value of each comment before it.
    """

    language: str
    text: str
    line: int
    marks: tuple[tuple[str, str], ...]

    def find_mark(self, name: str) -> str | None:
        """The value of a mark."""
        return next((value for found, value in self.marks if found == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command and what a page says that it prints."""

    typed: str
    shown: str


def name_page(page: Path) -> str:
    """The path in the repository."""
    return page.relative_to(ROOT).as_posix()


@cache
def read_blocks(page: Path) -> tuple[Block, ...]:
    """The fenced blocks of a page."""
    return tuple(list_blocks(page.read_text("utf-8")))


def list_blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a text, each with the comments right before it."""
    marks: tuple[tuple[str, str], ...] = ()
    for token in _PARSER.parse(text):
        if token.type == "html_block":
            found = _COMMENT.finditer(token.content)
            marks += tuple((m["name"], " ".join(m["value"].split())) for m in found)
            continue
        if token.type == "fence":
            assert token.map is not None
            yield Block(
                language=token.info.strip(),
                text=token.content,
                line=token.map[0] + 1,
                marks=marks,
            )
        marks = ()


def read_commands(block: Block) -> Iterator[Command]:
    """The commands of a `console` block."""
    typed: list[str] = []
    shown: list[str] = []
    for line in block.text.splitlines():
        goes_on = bool(typed) and not shown and typed[-1].endswith("\\")
        if line.startswith("$ ") and typed:
            yield Command(typed="\n".join(typed), shown="\n".join(shown))
            typed, shown = [], []
        if line.startswith("$ "):
            typed.append(line.removeprefix("$ "))
        elif goes_on:
            typed.append(line)
        else:
            shown.append(line)
    yield Command(typed="\n".join(typed), shown="\n".join(shown))


def list_links(text: str) -> Iterator[str]:
    """Where the links and pictures of a page lead."""
    for token in _walk(_PARSER.parse(text)):
        target = token.attrs.get("href") or token.attrs.get("src")
        if target:
            yield str(target)


@cache
def read_anchors(page: Path) -> frozenset[str]:
    """The anchors of a page."""
    return frozenset(list_anchors(page.read_text("utf-8")))


def list_anchors(text: str) -> Iterator[str]:
    """The anchors of a page's headings, as GitHub names them."""
    seen: Counter[str] = Counter()
    tokens = _PARSER.parse(text)
    for before, token in pairwise(tokens):
        if before.type != "heading_open":
            continue
        title = "".join(
            child.content
            for child in token.children or ()
            if child.type in ("text", "code_inline")
        )
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        yield f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor
        seen[anchor] += 1


def _walk(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _walk(token.children or [])


def is_shown(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed, but for spaces, times and roundings.

    A word `...` on the page stands for any text.
    """
    parts = [re.escape(_level(part)) for part in _forget_measures(shown).split("...")]
    pattern = r"\s*.*?\s*".join(parts)
    whole = _level(_forget_measures(printed))
    return re.fullmatch(pattern, whole, re.DOTALL) is not None


def _level(text: str) -> str:
    return " ".join(text.split())


def _forget_measures(text: str) -> str:
    """Leave out what hangs on the machine.

    Of a bound and what is held against it, with three digits and a power of ten, that
    power stays: a part of it is measured, and which instructions a processor has
    decides how sums round.
    """
    return re.sub(r"\b\d(\.\d{1,2})?(e[+-]\d+)\b", r"0\2", _forget_times(text))


def _forget_times(text: str) -> str:
    """Leave out what a clock said: the last column of a table, and seconds."""
    lines, is_timed = [], False
    for line in text.splitlines():
        is_timed = line.rstrip().endswith("seconds") or (
            is_timed and bool(line.strip())
        )
        lines.append(re.sub(r"\d+(\.\d+)?\s*$", "", line) if is_timed else line)
    return re.sub(r"\b\d+(\.\d+)? ?s\b( \(\d+:\d\d:\d\d\))?", "0 s", "\n".join(lines))
