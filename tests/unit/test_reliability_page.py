"""The page of scripts/reliability counts what its figures say, faults included."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from imported_scripts import import_scripts


def make_row(**changes: Any) -> dict[str, Any]:
    return {
        "case": "a task raises",
        "how": "`raise`",
        "kind": "event",
        "status": "fail",
        "said": "worker-1 raised | ValueError",
        "right": True,
        "seconds": 1.0,
        "left": "",
        "distbench": "abc",
        **changes,
    }


def make_lines(*rows: dict[str, Any]) -> list[str]:
    with import_scripts("measured", "reliability_page") as scripts:
        return list(scripts["reliability_page"].make_lines({"rows": rows}))


def test_a_row_has_counts_seconds_and_what_was_said() -> None:
    lines = make_lines(make_row(), make_row(seconds=3.0), make_row(seconds=2.0))
    assert lines[-3] == (
        "| a task raises | `raise` | 3 | 3 | 2.0 (3.0) | "
        "fail: `worker-1 raised / ValueError` | nothing |"
    )
    assert lines[-1] == ("3 of 3 runs ended as they have to; 0 left something behind.")


def test_what_went_wrong_and_what_was_left_is_counted() -> None:
    wrong = make_row(right=False, left="process 7 sleep", kind="deadline")
    lines = make_lines(wrong, wrong, make_row(case="another", kind="", said=""))
    assert "| 2 | 0 | 1.0 (1.0) after the deadline |" in lines[-4]
    assert lines[-4].endswith("| 2 × process 7 sleep |")
    assert "| 1 | 1 | – | fail | nothing |" in lines[-3]
    assert lines[-1] == "1 of 3 runs ended as they have to; 2 left something behind."


def test_a_pattern_that_fits_nothing_is_bad_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("measured", "leftovers", "reliability_page", "reliability")
    monkeypatch.setattr(sys, "argv", ["reliability", "--only", "^nonsense"])
    with import_scripts(*names) as scripts, pytest.raises(SystemExit) as ended:
        scripts["reliability"].main()
    assert ended.value.code == 2
    assert "no case fits '^nonsense'. There are:\n  " in capsys.readouterr().err
