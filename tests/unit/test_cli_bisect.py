"""`distbench bisect` of checks that nobody runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from verdict_samples import make_finding, make_run, make_verdict

from distbench import environments
from distbench.cli.bisect import bisect
from distbench.verdict import Run, Status


def run_bisect(monkeypatch: pytest.MonkeyPatch, run: Run) -> int:
    ran = environments.Ran(verdict=make_verdict(run), traces={})
    place = environments.Environment(place=Path("e"), python=Path("p"), packages={})
    monkeypatch.setattr(environments, "find_environment", lambda _: place)
    monkeypatch.setattr(environments, "check_under", lambda *_: ran)
    return bisect("a.b:c", Path("good"), Path("bad"))


def test_what_was_compared_nowhere_is_neither_alike_nor_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(Status.SKIPPED, message="need data that does not round, have other")
    assert run_bisect(monkeypatch, run) == 4
    told = "Nothing was compared: need data that does not round, have other"
    assert told in capsys.readouterr().out


def test_what_raises_under_both_is_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(Status.FAIL, findings=(make_finding(code="raises"),))
    assert run_bisect(monkeypatch, run) == 0
