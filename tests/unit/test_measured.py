"""What measuring scripts share: figures, and the commit that was measured."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from imported_scripts import import_scripts


@pytest.fixture(scope="module")
def measured() -> Iterator[Any]:
    with import_scripts("measured") as found:
        yield found["measured"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a package, a figure and one commit."""
    for name in ("distbench", "docs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("as committed", "utf-8")
    identity = ("-c", "user.name=anyone", "-c", "user.email=anyone@example.org")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "All")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def test_figures_that_are_written_leave_a_commit_clean(
    measured: Any, checkout: Path
) -> None:
    (checkout / "docs" / "file").write_text("new figures", "utf-8")
    assert measured.find_commit(checkout).isalnum()


def test_another_program_than_the_commits_is_told(
    measured: Any, checkout: Path
) -> None:
    (checkout / "distbench" / "file").write_text("changed", "utf-8")
    assert measured.find_commit(checkout).endswith("-dirty")


def test_without_a_repository_the_commit_is_unknown(
    measured: Any, tmp_path: Path
) -> None:
    assert measured.find_commit(tmp_path) == "unknown"


def test_figures_are_written_a_line_each(measured: Any, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    document = {"a": 1, "rows": [{"x": 1}, {"x": 2}], "none": []}
    measured.write_figures(file, document)
    assert json.loads(file.read_text()) == document
    assert file.read_text().splitlines()[3] == '  {"x": 1},'
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def keep(measured: Any, file: Path, *values: int, **place: str) -> Any:
    rows = [{"name": f"{value}", "distbench": "a"} for value in values]
    return measured.keep_rows(file, rows, place, ("name",))


def test_rows_tell_where_they_were_measured_if_few_were(
    measured: Any, tmp_path: Path
) -> None:
    file = tmp_path / "figures.json"
    keep(measured, file, 1, 2, 3, 4, python="3.11", system="a")
    keep(measured, file, 1, python="3.11", system="a", keras="3")  # now told
    document = keep(measured, file, 2, python="3.12", system="a")
    assert document["place"] == {"python": "3.11", "system": "a"}
    assert [row["name"] for row in document["rows"]] == ["1", "2", "3", "4"]
    assert [row["name"] for row in document["rows"] if "place" in row] == ["1", "2"]
    told = " ".join(measured.describe_measured(document))
    assert "python 3.11, system a; 1 row with python 3.12." in told
    # Of none the figures stay as they are, wherever that is done.
    assert keep(measured, file, python="4") == document
    assert json.loads(file.read_text()) == document


def test_each_row_keeps_the_commit_that_it_was_measured_by(
    measured: Any, tmp_path: Path
) -> None:
    file = tmp_path / "figures.json"
    old = {"place": {"distbench": "old", "python": "3"}, "rows": [{"name": "0"}]}
    file.write_text(json.dumps(old))
    document = keep(measured, file, 1, python="3")
    assert [row["distbench"] for row in document["rows"]] == ["old", "a"]
    assert document["place"] == {"python": "3"}
    assert all("place" not in row for row in document["rows"])


def test_parts_that_are_measured_at_a_time_are_all_kept(
    measured: Any, tmp_path: Path
) -> None:
    file = tmp_path / "figures.json"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: keep(measured, file, n), range(32)))
    assert len(measured.read_rows(file)) == 32
