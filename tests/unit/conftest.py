"""A check that is played, at the command line, and groups that follow a script."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from played_checks import Played
from plugin_suites import prepare
from scripted_group import Maker, open_scripted

from distbench.cli import main


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Played], None]:
    def install(check_target: Played) -> None:
        monkeypatch.setattr("distbench.preloading.begin_imports", lambda _: None)
        monkeypatch.setattr(
            "distbench.cli.checked.check_target",
            lambda target, options, progress, *_: check_target(
                target, options, progress
            ),
        )

    return install


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["distbench", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
        return int(stopped.value.code or 0)

    return run


@pytest.fixture
def make_scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Maker]:
    with open_scripted(tmp_path, monkeypatch) as make:
        yield make


@pytest.fixture
def suite(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    prepare(pytester, monkeypatch)
    return pytester
