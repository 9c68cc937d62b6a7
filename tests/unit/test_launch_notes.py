"""What a task took down last can be read, whatever became of it."""

from __future__ import annotations

from pathlib import Path

from distbench.launch.notes import LINE_BYTES, LINES, TOLD, Notes, read_notes


def test_the_last_lines_are_read_in_their_order(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "notes")
    assert read_notes(tmp_path / "notes") == ()
    notes.add("one")
    assert read_notes(tmp_path / "notes") == ("one",)
    for number in range(2 * LINES + 3):
        notes.add(f"line {number}")
    last = 2 * LINES + 3
    expected = tuple(f"line {number}" for number in range(last - TOLD, last))
    assert read_notes(tmp_path / "notes") == expected


def test_a_line_that_is_too_long_is_cut(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "notes")
    notes.add("é" * LINE_BYTES)
    notes.add("next")
    first, second = read_notes(tmp_path / "notes")
    text, _, mark = first.rpartition(" ")
    assert set(text) == {"é"}
    assert mark == "..."
    assert LINE_BYTES // 2 - 5 < len(text) < LINE_BYTES // 2
    assert second == "next"


def test_where_nothing_was_taken_down_nothing_is_read(tmp_path: Path) -> None:
    assert read_notes(tmp_path / "none") == ()
    (tmp_path / "damaged").write_bytes(b"\xff" * LINE_BYTES + b"x y")
    assert read_notes(tmp_path / "damaged") == ()
