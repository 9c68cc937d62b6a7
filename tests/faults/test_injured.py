"""Real clusters and benches that go wrong: who is named, and what is left behind."""

from __future__ import annotations

import dataclasses
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pytest
from imported_scripts import SCRIPTS, import_scripts

from distbench.checking.check import check_target
from distbench.launch import local
from distbench.options import CheckOptions
from distbench.target import write_pickled_target
from distbench.verdict import Status

pytestmark = pytest.mark.cluster
_NAMES = (
    "measured",
    "leftovers",
    "reliability_program",
    "reliability_crowd",
    "reliability_runs",
    "reliability_many",
    "reliability_bench",
    "reliability_page",
    "reliability_tasks",
    "reliability",
)
_SHORT = ("is stopped (SIGSTOP)", "sums in another order")
"""The most telling ones; a machine that is busy need not see all of them each time."""
_ALONE = ("fills its disk", "prints 2 GB")
"""These want a small disk of their own, which scripts/reliability makes."""

with import_scripts(*_NAMES) as _scripts:
    _RELIABILITY, _LEFTOVERS = _scripts["reliability"], _scripts["leftovers"]
    _TASKS = _scripts["reliability_tasks"]
_CASES = [
    pytest.param(
        case,
        id=case.injury or "right",
        marks=() if case.injury in _SHORT else pytest.mark.nightly,
    )
    for case in _TASKS.TASKS
    if case.injury not in _ALONE
]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A TMPDIR of the run's own, and a mark that tells its processes."""
    monkeypatch.syspath_prepend(SCRIPTS)
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv(_LEFTOVERS.MARK, uuid.uuid4().hex)
    return place


@pytest.mark.parametrize("case", _CASES)
def test_the_first_that_fails_is_named_and_nothing_is_left(
    case: Any, folder: Path
) -> None:
    row = _RELIABILITY.run_case(case, folder)
    assert row["right"], f"{row['status']}: {row['said']}"
    assert row["left"] == ""
    if row["kind"] == "event":
        # Ended by the event: only the other kind waits for the deadline.
        assert row["seconds"] < _TASKS.LIMIT_S


@pytest.mark.nightly  # one more run each
def test_a_run_that_ends_too_late_is_not_right(folder: Path) -> None:
    case = _find_case("takes memory without end")
    assert case.within_s == 2.0
    row = _RELIABILITY.run_case(dataclasses.replace(case, within_s=1e-3), folder)
    assert row["status"] == case.status
    assert not row["right"]


@pytest.mark.nightly
def test_a_server_of_every_interface_is_not_right(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LOOPBACK", "")
    row = _RELIABILITY.run_case(_find_case("is called from elsewhere"), folder)
    assert not row["right"]
    assert "127.0.0.99" in row["said"]


def _find_case(injury: str) -> Any:
    return next(case for case in _TASKS.TASKS if case.injury == injury)


@pytest.mark.nightly  # two checks
def test_a_suite_goes_on_after_workers_that_never_meet(tmp_path: Path) -> None:
    program = _scripts["reliability_program"].Program("sums in another order")
    options = CheckOptions(
        clusters=("mwms:2@cpu", "mirrored:2@cpu"), tiers=("bounded",)
    )
    verdict = check_target(write_pickled_target(program, tmp_path), options)
    stuck, right = verdict.runs
    assert [finding.code for finding in stuck.findings] == ["collective-mismatch"]
    for told in ("Last collectives of worker-0:", "Python stacks of worker-"):
        assert told in stuck.detail
    assert (right.cluster, right.status) == ("mirrored:2", Status.PASS)


@pytest.mark.nightly  # each starts a bench of its own
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name)
        for case in _RELIABILITY.BENCHES
        # Namespaces want root, and a crowd has the machine for itself.
        if not case.around and not case.counts
    ],
)
def test_nothing_outlives_a_bench_whatever_becomes_of_it(
    case: Any, folder: Path
) -> None:
    row = _RELIABILITY.run_case(case, folder)
    assert row["right"], f"{row['status']}: {row['said']}"
    assert row["left"] == ""
