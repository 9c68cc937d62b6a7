"""The command line in this process, with a check that is played."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from played_checks import Played

from distbench.cli import main


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Played], None]:
    def install(check_target: Played) -> None:
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
