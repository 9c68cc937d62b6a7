"""Nights of scripts/nightly, one after the other, with jobs that are played."""

from __future__ import annotations

import argparse
import datetime
import os
import signal
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from imported_scripts import NIGHTLY, share_scripts
from verdict_samples import make_finding, make_run, make_verdict

from distbench.history.store import History
from distbench.verdict import Run, Status, Worst
from distbench.verdict.document import verdict_from_json

ROOT = Path(__file__).parents[2]


scripts = share_scripts(*NIGHTLY)


class Nights:
    """Nights whose jobs are played, one after the other, in one history."""

    def __init__(self, scripts: Any, out: Path, monkeypatch: pytest.MonkeyPatch):
        self._nightly = scripts["nightly"]
        self._done = scripts["nightly_jobs"].Done
        self._patch = monkeypatch
        self._out = out
        self.folder = out

    def run(
        self,
        runs: dict[str, list[Run]],
        *words: str,
        signalled: signal.Signals | None = None,
        ignores_hangups: bool = False,
    ) -> int:
        def run_job(job: Any, *_: Any) -> Any:
            if signalled is not None:
                os.kill(os.getpid(), signalled)
            found = runs.get(job.name, [make_run(setup={"target": job.name})])
            environment = {"tensorflow": "2.21.0", "devices": [job.name]}
            return self._done(verdict=make_verdict(*found, environment=environment))

        before = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
        handlers = {number: signal.getsignal(number) for number in before}
        self._patch.setattr(self._nightly, "run_job", run_job)
        known = self._list_folders()
        # Whoever runs the tests under 'nohup' ignores it.
        hangup = signal.SIG_IGN if ignores_hangups else signal.SIG_DFL
        signal.signal(signal.SIGHUP, hangup)
        try:
            code = self._nightly.main(["--out", str(self._out), *words])
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if begun := self._list_folders() - known:  # bad usage begins no night
            (self.folder,) = begun
        return int(code)

    def _list_folders(self) -> set[Path]:
        return {path for path in self._out.glob("*") if path.is_dir()}

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def nights(scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    return Nights(scripts, tmp_path / "nights", monkeypatch)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name
)
def test_a_signal_ends_the_night_and_what_there_is_gets_written(
    nights: Nights, number: signal.Signals
) -> None:
    nights.run({}, "--only", "sgd-*", signalled=number)
    assert "no time for: sgd-float32-64" in nights.read("summary.txt")


def test_a_night_that_ignores_hangups_goes_on(nights: Nights) -> None:
    nights.run({}, "--only", "sgd-*", signalled=signal.SIGHUP, ignores_hangups=True)
    assert "no time for" not in nights.read("summary.txt")


FAILED = make_run(
    Status.FAIL,
    findings=(make_finding(),),
    worst=Worst(phase="variable", variable="w", error_over_bound=1e5),
    setup={"target": "sgd-float32"},
)


@pytest.mark.sweep
def test_a_second_night_says_what_is_new(nights: Nights, capsys) -> None:
    assert nights.run({}) == 0
    shown = capsys.readouterr().out
    assert "night 1 of" in shown
    assert "new failure" not in shown
    assert nights.run({"sgd-float32": [FAILED]}) == 1
    shown = capsys.readouterr().out
    assert (
        "new failure: sgd-float32 mlp-adam-mwms:2-none [bounded]: pass -> fail: "
        "missing-reduction in reduced_gradient of dense/kernel" in shown
    )
    assert shown.count("new failure:") == 1
    assert nights.read("summary.txt") in shown
    verdict = verdict_from_json(nights.read("verdict.json"))
    assert verdict.status is Status.FAIL
    assert verdict.environment["machine"]["cores"] >= 1
    assert "devices" not in verdict.environment
    [suite] = ElementTree.fromstring(nights.read("junit.xml"))
    assert suite.get("failures") == "1"
    assert "missing-reduction" in nights.read("report.html")
    history = History(nights.folder.parent / "history.sqlite")
    assert [night.status for night in history.list_nights(5)] == ["pass", "fail"]
    assert nights.run({}) == 0
    assert "fixed: sgd-float32" in capsys.readouterr().out


@pytest.mark.sweep
def test_one_slow_run_is_nothing_new(nights: Nights, capsys) -> None:
    slow = make_run(seconds=90.0, setup=FAILED.setup)
    nights.run({})
    assert nights.run({"sgd-float32": [slow]}) == 0
    assert "slower" not in capsys.readouterr().out


@pytest.mark.sweep
def test_a_drift_is_told_before_anything_fails(nights: Nights, capsys) -> None:
    only = ("--only", "sgd-float32")
    for _ in range(6):
        nights.run({}, *only)
    worst = Worst(phase="variable", variable="w", error_over_bound=0.75)
    capsys.readouterr()
    near = make_run(worst=worst, setup=FAILED.setup)
    assert nights.run({"sgd-float32": [near]}, *only) == 0
    assert (
        "drift: sgd-float32 mlp-adam-mwms:2-none [bounded]: error/bound 0.75, 3 times "
        "what it was (0.25, median of 6)" in capsys.readouterr().out
    )


@pytest.mark.sweep
def test_a_night_in_part_is_held_against_the_last_run_of_each(
    nights: Nights, capsys
) -> None:
    nights.run({})
    nights.run({}, "--only", "adam-*")
    nights.run({"sgd-float32": [FAILED]}, "--only", "sgd-float32", "--only", "x")
    shown = capsys.readouterr().out
    assert "1 in both: 1 new failure" in shown


@pytest.mark.sweep
def test_known_failures_do_not_make_a_night_red(
    nights: Nights, tmp_path: Path, capsys
) -> None:
    entry = (
        "[known]\nscenario = mlp-*\ntarget = sgd-*\ncode = missing-reduction\n"
        "reason = upstream\nuntil = 9999-12-31\n"
    )
    (tmp_path / "q.ini").write_text(
        entry + entry.replace("known", "gone").replace("mlp", "x")
    )
    words = ("--quarantine", str(tmp_path / "q.ini"))
    assert nights.run({"sgd-float32": [FAILED]}, *words) == 0
    shown = capsys.readouterr().out
    assert "known: sgd-float32 mlp-adam-mwms:2-none [bounded]: fail" in shown
    assert "upstream" in nights.read("report.html")
    assert 'type="quarantined"' in nights.read("junit.xml")
    assert "quarantine: 'gone' fits no scenario (x-*): take it out" in shown
    other = make_finding(code="raises")
    worse = make_run(Status.FAIL, findings=(other,), setup=FAILED.setup)
    assert nights.run({"sgd-float32": [worse]}, *words) == 1
    assert "new failure: sgd-float32" in capsys.readouterr().out
    for part in ("--only=adam-*", "-c=mwms:2", "--optimizer=tests.a:b"):
        assert nights.run({}, part, *words) == 0
        assert "fits no scenario" not in capsys.readouterr().out  # it was not due


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("status", "code"),
    [("error", 3), ("undecidable", 4), ("skipped", 0), ("refused", 0)],
)
def test_the_night_ends_as_a_check_does(
    nights: Nights, capsys, status: str, code: int
) -> None:
    run = make_run(Status(status), message="need 2 GPUs, have 0", setup=FAILED.setup)
    assert nights.run({"sgd-float32": [run]}) == code
    assert "need 2 GPUs, have 0" in capsys.readouterr().out


def test_a_night_that_is_over_names_what_it_did_not_reach(
    nights: Nights, capsys
) -> None:
    assert nights.run({}, "--only", "sgd-float??", "--hours", "0") == 4
    assert "no time for: sgd-float32, sgd-float64, sgd-float16" in (
        capsys.readouterr().out
    )


def test_a_history_that_cannot_be_used_loses_no_report(nights: Nights, capsys) -> None:
    nights.folder.mkdir()
    (nights.folder / "history.sqlite").write_text("no database" * 100)
    assert nights.run({"sgd-float32": [FAILED]}) == 1
    assert nights.run({}) == 3
    assert "is no history, or is damaged" in capsys.readouterr().out
    assert verdict_from_json(nights.read("verdict.json"))


def test_nights_of_one_minute_have_folders_of_their_own(
    scripts: Any, tmp_path: Path
) -> None:
    now = datetime.datetime(2026, 3, 1, 3, 4).astimezone()
    made = [scripts["nightly"].make_folder(tmp_path, now).name for _ in range(3)]
    assert made == ["2026-03-01T0304", "2026-03-01T0304-2", "2026-03-01T0304-3"]


@pytest.mark.parametrize(
    ("now", "until", "hours"),
    [("22:30", "06:00", 7.5), ("05:00", "06:00", 1.0), ("06:00", "06:00", 24.0)],
)
def test_the_night_ends_when_the_clock_says_so(
    scripts: Any, now: str, until: str, hours: float
) -> None:
    clock = datetime.time.fromisoformat(now)
    begin = datetime.datetime.combine(datetime.date(2026, 3, 1), clock).astimezone()
    options = argparse.Namespace(hours=None, until=datetime.time.fromisoformat(until))
    end = scripts["nightly_options"].find_end(options, begin)
    assert (end - begin).total_seconds() == 3600 * hours


@pytest.mark.parametrize(
    ("now", "until", "hours"),
    [
        ("2026-03-28T22:00", "06:00", 7),  # summer time begins
        ("2026-10-24T22:00", "06:00", 9),  # and ends
        ("2026-10-24T23:30", "02:30", 3),
        ("2026-10-25T02:30", "02:30", 1),  # the clock shows it again
        ("2026-03-29T01:30", "02:30", 1),  # it never does
    ],
)
@pytest.mark.skipif(not hasattr(time, "tzset"), reason="need POSIX' time zones")
def test_the_clock_may_change_in_the_night(
    scripts: Any, monkeypatch: pytest.MonkeyPatch, now: str, until: str, hours: float
) -> None:
    with monkeypatch.context() as there:
        there.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        begin = datetime.datetime.fromisoformat(now).astimezone(datetime.timezone.utc)
        clock = datetime.time.fromisoformat(until)
        options = argparse.Namespace(hours=None, until=clock)
        end = scripts["nightly_options"].find_end(options, begin)
    time.tzset()
    assert (end - begin).total_seconds() == 3600 * hours


@pytest.mark.parametrize(
    "words",
    [
        ("--hours", "inf"),
        ("--hours", "nan"),
        ("--hours", "-1"),
        ("--jobs", "0"),
        ("--require-gpus", "-1"),
        (),
    ],
    ids=str,
)
def test_bad_numbers_are_bad_usage(
    scripts: Any, monkeypatch: pytest.MonkeyPatch, capsys, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("DISTBENCH_JOBS", "x")
    with pytest.raises(SystemExit) as ended:
        scripts["nightly"].main([*words, "--list"])
    assert ended.value.code == 2
    assert f"argument {(*words, '--jobs')[0]}: expected a" in capsys.readouterr().err


def test_a_jobs_option_is_all_that_counts(
    scripts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTBENCH_JOBS", "x")
    options = scripts["nightly_options"].parse_arguments(["--jobs", "2"], "")
    assert options.jobs == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "nothing"], "No job fits 'nothing'. There are"),
        (["--optimizer", "a.b"], "names no attribute"),
        (["--quarantine", "none.ini"], "cannot be read"),
        (["--window", "3"], "must be looked at"),
    ],
)
def test_bad_usage_is_told_before_anything_runs(
    nights: Nights, capsys, words: list[str], message: str
) -> None:
    assert nights.run({}, *words) == 2
    assert not nights.folder.exists()
    assert message in capsys.readouterr().err


def test_jobs_are_listed(scripts: Any, capsys, tmp_path: Path) -> None:
    assert scripts["nightly"].main(["--list", "--out", str(tmp_path / "n")]) == 0
    lines = capsys.readouterr().out.splitlines()
    files = list((ROOT / "scenarios").glob("test_*.py"))
    assert sum("pytest scenarios/" in line for line in lines) == len(files)
    assert any(line.startswith("adam-float64 ") for line in lines)
    assert not (tmp_path / "n").exists()
