"""Rows of a measured table that are no pass, and what is known of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Why some rows are no pass.

    Attributes:
        title: In a few words.
        says: What happens, and in which file and function of the installed version.
        fits: Whether a row is one of them, by what came out.
        entry: The file in docs/upstream that shows it without the bench.
    """

    title: str
    says: str
    fits: Callable[[Row], bool]
    entry: str | None = None


def find_known(row: Row, known: Sequence[Known]) -> Known | None:
    """The first entry that explains a row, or None."""
    return next((entry for entry in known if entry.fits(row)), None)


def number_row(row: Row, known: Sequence[Known]) -> str:
    """The number of that entry, or `?`."""
    entry = find_known(row, known)
    return "?" if entry is None else str(known.index(entry) + 1)


def write_known(
    rows: Sequence[Row], known: Sequence[Known], what: str
) -> Iterator[str]:
    """The part of a page about rows that are no pass.

    Args:
        rows: All of them.
        known: What explains them.
        what: What a page calls its rows.
    """
    counts = Counter(number_row(r, known) for r in rows if r["status"] != "pass")
    yield "## What is no pass"
    yield ""
    for number, entry in enumerate(known, start=1):
        if count := counts[str(number)]:
            link = f" [Shown alone](upstream/{entry.entry})." if entry.entry else ""
            yield f"{number}. **{entry.title}** ({count}). {entry.says}{link}"
    yield ""
    if count := counts["?"]:
        yield f"{count} {what} are not explained yet."
        yield ""


def join_cells(*cells: object) -> str:
    """A row of a table of Markdown."""
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def start_table(*titles: str) -> Iterator[str]:
    """The head of one."""
    yield join_cells(*titles)
    yield join_cells(*("---" for _ in titles))
