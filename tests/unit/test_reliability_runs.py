"""How often the cases of scripts/reliability are run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from imported_scripts import import_scripts

NAMES = ("measured", "leftovers", "reliability_runs", "reliability_bench")
with import_scripts(*NAMES) as _scripts:
    bench, leftovers = _scripts["reliability_bench"], _scripts["leftovers"]
    list_runs = _scripts["reliability_runs"].list_runs
    merge_rows = _scripts["reliability_runs"].merge_rows


@dataclass(frozen=True)
class Case:
    name: str
    enough: int = 0


PLAIN, COUNTING = Case("plain"), Case("counting", enough=10)


def play(rows: list[dict[str, Any]], each: int) -> list[str]:
    names = []
    for case in list_runs([PLAIN, COUNTING], 2, rows):
        names.append(case.name)
        counts = {"clusters": each, "failed": 0} if case.enough else {}
        rows.append({"case": case.name, "counts": counts})
    return names


def test_what_counts_is_run_until_it_is_enough() -> None:
    assert play([], each=4) == ["plain", "plain", "counting", "counting", "counting"]


def test_what_was_counted_before_is_not_run_again() -> None:
    before = [{"case": "counting", "counts": {"clusters": 8}}, {"case": "plain"}]
    assert play(before, each=4) == ["plain", "plain", "counting"]


def test_a_run_that_counts_nothing_is_the_last() -> None:
    assert play([], each=0) == ["plain", "plain", "counting"]


def test_what_was_run_anew_takes_the_place_of_its_earlier_rows() -> None:
    names = ["a", "b", "c"]
    before = [{"case": name, "day": 1} for name in ("b", "renamed", "a", "b")]
    today = [{"case": "c", "day": 2}, {"case": "a", "day": 2}]
    assert [(row["case"], row["day"]) for row in merge_rows(before, today, names)] == [
        ("a", 2),
        ("b", 1),
        ("b", 1),
        ("c", 2),
    ]
    assert merge_rows(before, [], names)[0] == {"case": "a", "day": 1}


@pytest.mark.skipif(sys.platform != "linux", reason="need GNU's env")
def test_a_bench_that_hangs_is_a_row(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "import time; time.sleep(60)")
    case = bench.BenchCase(
        name="a", how="b", said="", codes=(0,), command=command, ends_s=0.2
    )
    row = bench.run_bench(case, tmp_path, "mark")
    assert (row["right"], row["status"]) == (False, "did not end within 0.2 s")


def test_a_fork_server_that_ends_meanwhile_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def raise_gone(_: Any) -> bool:
        raise psutil.NoSuchProcess(1)

    own = SimpleNamespace(children=lambda: [None])
    monkeypatch.setattr(leftovers.psutil, "Process", lambda: own)
    monkeypatch.setattr(leftovers, "_is_own_server", raise_gone)
    assert list(leftovers._list_forked()) == []
