"""`distbench history` and `distbench compare`: options in, words and exit codes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from night_samples import make_night, make_row, play_nights
from verdict_samples import EVIL, make_finding, make_run, make_verdict

from distbench.cli import main
from distbench.history.store import History
from distbench.verdict import Run, Status, Worst
from distbench.verdict.document import verdict_to_json

BEGUN = datetime(2026, 3, 1, 1, 17, tzinfo=timezone.utc)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> int:
        monkeypatch.setattr("sys.argv", ["distbench", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
        return int(stopped.value.code or 0)

    return run


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A history of ten nights: a planted drift, a flaky scenario, a known failure."""
    path = tmp_path / "h.sqlite"
    flaky = [Status.FAIL if night in (3, 7) else Status.PASS for night in range(10)]
    known = {"status": Status.FAIL, "quarantined": True, "message": "quarantined (x)"}
    nights = play_nights(
        {
            "nearer": [make_row("nearer", error_over_bound=0.1)] * 9
            + [make_row("nearer", error_over_bound=0.3)],
            "slower": [make_row("slower")] * 8 + [make_row("slower", seconds=8)] * 2,
            "flaky": [make_row("flaky", status=status) for status in flaky],
            "known": [make_row("known", **known)] * 10,
        }
    )
    for night in nights:
        History(path).add(night)
    monkeypatch.setenv("DISTBENCH_HISTORY", str(path))
    return path


def write_verdict(path: Path, *runs: Run, **changes) -> str:
    path.write_text(verdict_to_json(make_verdict(*runs, **changes)))
    return str(path)


def test_the_last_nights_and_what_moved_are_shown(call, capsys, file: Path) -> None:
    assert call("history") == 0
    shown = capsys.readouterr().out
    for line in (
        "drift: adam.py:make slower [bounded]: seconds 8 s, 2 times what it was (4 s, "
        "median of 8)",
        "drift: adam.py:make nearer [bounded]: error/bound 0.3, 3 times what it was "
        "(0.1, median of 9)",
        "flaky: adam.py:make flaky [bounded]: failed 2 of 10 times (20 %)",
        "known: adam.py:make known [bounded]: fail, quarantined (x)",
        "3 pass, 1 fail (known)",
    ):
        assert line in shown


def test_limits_are_options(call, capsys, file: Path) -> None:
    assert (
        call("history", "--time-ratio", "2.5", "--error-ratio", "4", "--flaky", "30,90")
        == 0
    )
    shown = capsys.readouterr().out
    assert "drift" not in shown
    assert "flaky:" not in shown
    assert call("history", "--last", "7", "--least", "6") == 2
    told = capsys.readouterr().err
    assert "last 8 nights or more must be looked at" in told
    assert "6 before them (--least)" in told
    for wrong in ("some", "5", "95,5", "0,101"):
        assert call("history", "--flaky", wrong) == 2
        told = capsys.readouterr().err
        assert f"percent such as 5,95, the lower one first. Received: {wrong!r}" in told
    assert call("history", "--floor", "5") == 0
    assert "slower" not in capsys.readouterr().out


def test_a_scenario_is_shown_night_by_night(call, capsys, file: Path) -> None:
    assert call("history", "near*", "--file", str(file)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "adam.py:make nearer [bounded]"
    assert lines[-1].split() == ["10", "2026-01-10", "01:00", "pass", "4.0", "0.3"]
    assert len(lines) == 12
    assert call("history", "mwms") == 2
    assert "There is: nearer, slower, flaky, known" in capsys.readouterr().err


def test_verdicts_are_added(call, capsys, tmp_path: Path) -> None:
    name = write_verdict(tmp_path / "v.json", make_run(message=EVIL))
    late = write_verdict(tmp_path / "late.json", make_run(), begun=BEGUN)
    more = write_verdict(tmp_path / "more.json", make_run(seconds=1.5))
    words = [word for file in (name, late, more) for word in ("--add", file)]
    assert call("history", "--file", "new.sqlite", *words) == 0
    shown = capsys.readouterr().out
    assert f"{name}: night 1" in shown
    # Nights are in the order in which they began.
    assert shown.index(" 2  2026-03-01 01:17") < shown.index(" 1  2")
    assert "Nothing moved in night 3." in shown
    assert call("history", "--file", "new.sqlite", "mlp*") == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("begun", [None, BEGUN], ids=["unknown", "told"])
def test_a_verdict_is_no_two_nights(call, capsys, tmp_path: Path, begun) -> None:
    name = write_verdict(tmp_path / "v.json", make_run(message=EVIL), begun=begun)
    words = ["history", "--file", "new.sqlite", "--add", name, "--add", name]
    assert call(*words) == 0
    assert "night 1 already, and not added again" in capsys.readouterr().out
    assert call(*words) == 0
    assert "Nothing moved in night 1." in capsys.readouterr().out
    # Where nothing was run only the time tells.
    skipped = make_run(Status.SKIPPED, seconds=0.0)
    for number in (1, 2):
        at = BEGUN + timedelta(days=number)
        name = write_verdict(tmp_path / "v.json", skipped, begun=at)
        assert call("history", "--file", "new.sqlite", "--add", name) == 0
        assert f": night {number + 1}\n" in capsys.readouterr().out


def test_a_broken_verdict_keeps_the_others_out(call, capsys, tmp_path: Path) -> None:
    name = write_verdict(tmp_path / "v.json", make_run())
    (tmp_path / "bad.json").write_text("{}")
    words = ["--add", name, "--add", "bad.json", "--file", "new.sqlite"]
    assert call("history", *words) == 2
    assert "'bad.json': This is not a verdict" in capsys.readouterr().err
    assert not (tmp_path / "new.sqlite").exists()


def test_without_a_history_it_is_said_how_to_get_one(call, capsys) -> None:
    assert call("history") == 2
    shown = capsys.readouterr().err
    assert "no history 'nights/history.sqlite'" in shown
    assert "distbench history --add VERDICT.json" in shown


def test_two_verdicts_are_compared(call, capsys, tmp_path: Path) -> None:
    good = write_verdict(tmp_path / "good.json", make_run())
    worst = Worst(phase="variable", variable="w", error_over_bound=9e5)
    failed = make_run(Status.FAIL, findings=(make_finding(),), worst=worst)
    environment = {"tensorflow": "2.22.0", "devices": ["cpu:0"]}
    bad = write_verdict(tmp_path / "bad.json", failed, environment=environment)
    assert call("compare", good, bad) == 1
    assert capsys.readouterr().out.splitlines() == [
        "new failure: optimizers.py:adam mlp-adam-mwms:2-none [bounded]: pass -> fail: "
        "missing-reduction in reduced_gradient of dense/kernel",
        "environment: tensorflow: 2.21.0 -> 2.22.0",
        "1 in both: 1 new failure",
    ]
    assert call("compare", bad, good) == 0
    assert "fixed: " in capsys.readouterr().out
    assert call("compare", good, good) == 0
    assert capsys.readouterr().out == "1 in both: nothing changed\n"


def test_several_failures_are_counted_as_several(call, capsys, tmp_path: Path) -> None:
    names = [
        write_verdict(
            tmp_path / f"{status}.json", *(make_run(status, scenario=s) for s in "ab")
        )
        for status in (Status.PASS, Status.ERROR)
    ]
    assert call("compare", *names) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "2 in both: 2 new failures"


def test_scenarios_that_came_and_went_are_counted(call, capsys, tmp_path: Path) -> None:
    names = [
        write_verdict(tmp_path / f"{part}.json", *(make_run(scenario=s) for s in runs))
        for part, runs in (("few", ["a"]), ("many", ["b", "c", "d", "e", "f"]))
    ]
    assert call("compare", *names) == 4  # of nothing it is not said that it is as good
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "gone: optimizers.py:adam a [bounded]"
    assert lines[1].endswith("optimizers.py:adam d [bounded] and 2 more")
    assert lines[2] == "0 in both: 1 gone, 5 new"


def test_nights_of_a_history_are_compared(call, capsys, file: Path) -> None:
    assert call("compare", "1", "last") == 1
    shown = capsys.readouterr().out
    assert "nearer [bounded]: 0.1 -> 0.3 (3 times)" in shown
    assert "slower [bounded]: 4.0 s -> 8.0 s (2 times)" in shown
    assert call("compare", "previous", "last", "--error-ratio", "4") == 0
    assert call("compare", "1", "99") == 2
    assert "has no night 99" in capsys.readouterr().err
    lone = file.with_name("lone.sqlite")
    History(lone).add(make_night(make_row()))
    assert call("compare", "previous", "last", "--file", str(lone)) == 2


def spoil(place: list[str | int], value: object) -> str:
    """A verdict in which something is of another kind."""
    text = verdict_to_json(
        make_verdict(make_run(Status.FAIL, findings=(make_finding(),)))
    )
    document = node = json.loads(text)
    for name in place[:-1]:
        node = node[name]
    node[place[-1]] = value
    return json.dumps(document)


@pytest.mark.first(6)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        "nothing",
        "[" * 100_000,
        '{"schema": "distbench/verdict/1"}',
        spoil(["schema"], "distbench/verdict/2"),
        spoil(["environment"], ["a"]),
        spoil(["begun"], "yesterday"),
        spoil(["begun"], 5),
        spoil(["options"], "all"),
        spoil(["runs"], {"a": 1}),
        spoil(["runs", 0], "run"),
        spoil(["runs", 0, "scenario"], {"a": 1}),
        spoil(["runs", 0, "status"], "great"),
        spoil(["runs", 0, "seconds"], [1]),
        spoil(["runs", 0, "seconds"], "__import__('os')"),
        spoil(["runs", 0, "setup"], 3),
        spoil(["runs", 0, "worst", "error_over_bound"], 10**400),
        spoil(["runs", 0, "findings"], 3),
        spoil(["runs", 0, "findings", 0, "code"], ["x"]),
        spoil(["runs", 0, "findings", 0], None),
    ],
    ids=str,
)
def test_what_is_no_verdict_gets_one_message(
    call, capsys, tmp_path: Path, text: str
) -> None:
    (tmp_path / "bad.json").write_text(text)
    good = write_verdict(tmp_path / "good.json", make_run())
    assert call("compare", good, "bad.json") == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("distbench: 'bad.json': ")


def test_a_run_of_unhashable_settings_is_one_of_a_variant(
    call, capsys, tmp_path: Path
) -> None:
    text = spoil(["runs", 0, "setup"], {"dtype": ["x"], "split": ["a"], "target": 3})
    (tmp_path / "odd.json").write_text(text)
    assert call("compare", "odd.json", "odd.json") == 0
    assert capsys.readouterr().out == "1 in both: nothing changed\n"
