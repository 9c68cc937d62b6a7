"""The page that sets engines side by side says what is alike, and what is not."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from imported_scripts import import_scripts


@pytest.fixture(scope="module")
def table() -> Iterator[Any]:
    with import_scripts("measured", "engines_table") as found:
        yield found["engines_table"]


def make_check(engine: str, **changes: Any) -> dict[str, Any]:
    run = {
        "scenario": "linear-sgd-mwms:2",
        "tier": "bounded",
        "status": "fail",
        "seconds": 2.0,
        "findings": [{"code": "double-reduction", "ratio": 2.0}],
        **changes,
    }
    verdict = {"status": "fail", "runs": [run], "environment": {"of": engine}}
    return {"engine": engine, "target": "a:b", "seconds": 5.0, "verdict": verdict}


def make_words(table: Any, rows: list[dict[str, Any]]) -> str:
    """The page without its line breaks."""
    return " ".join(table.make_page({"place": {}, "rows": rows}).split())


def test_seconds_and_environment_do_not_count(table: Any) -> None:
    rows = table.make_rows([make_check("local"), make_check("ray", seconds=4.0)])
    assert [row["alike"] for row in rows] == [True, True]
    assert [row["besides"] for row in rows] == [3.0, 1.0]
    page = make_words(table, rows)
    assert "the same with all of them." in page
    assert "| bounded | fail, double-reduction | 2.0 | 4.0 |" in page


@pytest.mark.parametrize("changed", ["status", "findings"])
def test_any_other_difference_does(table: Any, changed: str) -> None:
    other = {
        "status": "pass",
        "findings": [{"code": "double-reduction", "ratio": 2.5}],
    }
    found = make_check("slurm", **{changed: copy.deepcopy(other[changed])})
    rows = table.make_rows([make_check("local"), found])
    assert [row["alike"] for row in rows] == [True, False]
    assert "With slurm verdicts differ in more" in make_words(table, rows)


def test_each_engine_is_held_against_the_local_one(
    table: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(table, "measure", lambda engine: [make_check(engine)])
    file = tmp_path / "engines.json"
    table.main(["--engines", "ray", "--json", str(file)])
    rows = json.loads(file.read_text())["rows"]
    assert [row["engine"] for row in rows] == ["local", "ray"]
    with pytest.raises(SystemExit):
        table.main(["--engines", "rays"])
