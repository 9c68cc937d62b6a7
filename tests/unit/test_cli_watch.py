"""Checking again on every save, without processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from distbench.cli import watch
from distbench.cli.watch import check_on_save, find_sources, read_stamp
from distbench.errors import BadInputError
from distbench.launch.spares import Spares
from distbench.target import TargetRef, parse_target


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "subject.py"
    file.write_text("def make(): ...\n")
    return file


def make_target(file: Path) -> TargetRef:
    return parse_target(f"{file}:make")


def play_saves(
    monkeypatch: pytest.MonkeyPatch, *saves: Callable[[], object]
) -> list[str]:
    """Have each wait do something, the last one be ended by Ctrl-C."""
    waits = iter(saves)
    waited: list[str] = []

    def sleep(_: float) -> None:
        waited.append("waited")
        save = next(waits, None)
        if save is None:
            raise KeyboardInterrupt
        save()

    monkeypatch.setattr(watch.time, "sleep", sleep)
    return waited


def test_each_save_is_checked_and_ctrl_c_ends_with_the_last_code(
    monkeypatch: pytest.MonkeyPatch, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = iter([1, 0])
    play_saves(
        monkeypatch,
        lambda: None,
        lambda: source.write_text("def make(): return 1\n"),
    )
    answer = check_on_save(make_target(source), lambda: next(codes), Told([]))
    assert answer == 0
    assert capsys.readouterr().err.count(f"waiting for a change in {source.parent}")


def test_what_is_saved_while_a_check_runs_is_checked_at_once(
    monkeypatch: pytest.MonkeyPatch, source: Path
) -> None:
    waited = play_saves(monkeypatch)
    ran: list[int] = []

    def check() -> int:
        ran.append(len(waited))
        if len(ran) == 1:
            source.with_name("other.py").write_text("")
        return 4

    assert check_on_save(make_target(source), check, Told([])) == 4
    assert ran == [0, 0]


def test_a_broken_file_is_told_and_may_be_mended(
    monkeypatch: pytest.MonkeyPatch, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([BadInputError("no such attribute"), None])

    def check() -> int:
        error = next(answers)
        if error is not None:
            raise error
        return 0

    play_saves(monkeypatch, source.unlink)
    assert check_on_save(make_target(source), check, Told([])) == 0
    assert "no such attribute" in capsys.readouterr().err


class Told(Spares):
    """Says what is asked of it."""

    def __init__(self, told: list[str]) -> None:
        super().__init__()
        self._told = told

    def fill(self) -> None:
        self._told.append("fill")

    def end_old(self) -> None:
        self._told.append("end old")


def test_tasks_are_started_before_a_save_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, source: Path
) -> None:
    play_saves(monkeypatch, lambda: source.write_text("def make(): return 1\n"))
    told: list[str] = []

    def check() -> int:
        told.append("check")
        return 0

    check_on_save(make_target(source), check, Told(told))
    first, _, second = " ".join(told).partition(" check ")
    assert first == "check fill end old end old"
    assert second.startswith("fill end old")


def test_ctrl_c_in_a_check_ends_all(source: Path) -> None:
    def check() -> int:
        raise KeyboardInterrupt

    assert check_on_save(make_target(source), check, Told([])) == 130


def test_only_sources_count(source: Path) -> None:
    before = read_stamp(source.parent)
    for name in (".hidden", "__pycache__", "site-packages"):
        folder = source.parent / name
        folder.mkdir()
        (folder / "module.py").touch()
    source.with_suffix(".txt").touch()
    assert read_stamp(source.parent) == before == {source: before[source]}
    deeper = source.parent / "package"
    deeper.mkdir()
    (deeper / "module.py").touch()
    assert read_stamp(source.parent).keys() == {source, deeper / "module.py"}


@pytest.mark.parametrize(
    ("target", "place"),
    [
        ("package.module:make", "package"),
        ("single:make", "single.py"),
        ("nowhere.to_be.found:make", ""),
    ],
)
def test_sources_of_a_module(tmp_path: Path, target: str, place: str) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "single.py").touch()
    assert find_sources(parse_target(target, tmp_path)) == tmp_path / place


def test_sources_of_an_installed_package(tmp_path: Path) -> None:
    found = find_sources(parse_target("distbench.samples:x", tmp_path))
    assert found == Path(watch.__file__).parents[1]
