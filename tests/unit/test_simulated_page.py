"""The page of replayed sums says what its figures say, false alarms included."""

from __future__ import annotations

from typing import Any

from imported_scripts import import_scripts


def make_row(replicas: int, seen: int = 3, alone: int = 3, **changes: Any) -> Any:
    found = {"largest": 0.5, "median": 0.1, "tests": 0.2, "off": 0.01, "wrong": 0}
    return {
        "dtype": "float16",
        "addends": "alike",
        "replicas": replicas,
        "sums": 6,
        "nu": 0.1,
        "reductions": {"ring": found, "tree": {**found, **changes}},
        "lost replica seen by elements": alone,
        "lost replica seen": seen,
    }


def make_text(*rows: Any) -> str:
    with import_scripts("measured", "simulated_page") as scripts:
        return "\n".join(scripts["simulated_page"].make_lines({"rows": rows}))


def test_alarms_and_the_worst_sum_are_told() -> None:
    text = make_text(make_row(2), make_row(4, wrong=2, off=0.87, largest=1.25))
    assert "2 of 12 sums were called wrong" in text
    words = " ".join(text.split())
    assert "was 1.25 of its bound" in words
    assert "with 4 addends in float16 that are alike tree is 87% off" in words
    assert "| 4 | 0.1 | 0.5, 0.1 | 1.2, 0.1 | 0.2 | 0.9 |" in text


def test_the_most_replicas_are_those_before_the_first_that_is_not_seen() -> None:
    rows = [make_row(2), make_row(4, alone=2), make_row(8, alone=0), make_row(16, 1, 0)]
    text = make_text(*rows, make_row(32))
    assert "| float16 | alike | 2 | 8 |" in text
    assert "float16, alike: 4 to 8." in " ".join(text.split())


def test_what_is_never_seen_is_told_as_one() -> None:
    assert "| float16 | alike | 1 | 1 |" in make_text(make_row(2, seen=0, alone=0))
