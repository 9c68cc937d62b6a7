"""What a check writes, and where, also where it is ended early."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from xml.etree import ElementTree

import pytest
from played_checks import raise_
from verdict_samples import LINEAR_SETUP, make_finding, make_run, make_verdict

from distbench.errors import ClusterError
from distbench.scenario import Scenario
from distbench.verdict import Status, Verdict
from distbench.verdict.document import verdict_from_json


def test_reports_are_written(play, call, tmp_path: Path) -> None:
    verdict = make_verdict(make_run(Status.FAIL, findings=(make_finding(),)))
    play(lambda *_: verdict)
    files = {kind: tmp_path / f"report.{kind}" for kind in ("json", "html", "junit")}
    words = [word for kind, file in files.items() for word in (f"--{kind}", str(file))]
    assert call("check", "a.b:c", *words) == 1
    assert verdict_from_json(files["json"].read_text()) == verdict
    assert "missing-reduction" in files["html"].read_text()
    ElementTree.parse(files["junit"])


def test_a_report_on_standard_output_stands_there_alone(
    play, call, capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verdict = make_verdict(make_run(Status.FAIL, findings=(make_finding(),)))
    play(lambda *_: verdict)
    assert call("check", "a.b:c", "--json", "-") == 1
    told = capsys.readouterr()
    assert verdict_from_json(told.out) == verdict
    assert "missing-reduction" in told.err
    assert not list(tmp_path.iterdir())


def test_a_check_that_ends_before_its_scenarios_are_known_leaves_its_errors(
    play, call, capsys, tmp_path: Path
) -> None:
    report = tmp_path / "verdict.json"
    play(raise_(ClusterError("the deadline passed", detail="last log line")))
    words = ("-c", "one", "-c", "mwms:2", "--tier", "free", "--json", str(report))
    assert call("check", "a.b:c", *words) == 3
    assert "the deadline passed" in capsys.readouterr().err
    verdict = verdict_from_json(report.read_text())
    assert verdict.exit_code == 3
    assert [run.cluster for run in verdict.runs] == ["one", "mwms:2"]
    assert verdict.runs[0].message == "Not judged: the deadline passed"
    assert verdict.runs[0].detail == "last log line"
    assert {"distbench", "python", "machine"} <= verdict.environment.keys()
    assert verdict.begun is not None
    assert "clusters" in verdict.options


@pytest.mark.parametrize(
    ("error", "code", "why"),
    [
        (KeyboardInterrupt(), 130, "Not judged: interrupted"),
        (ClusterError("the disk is full"), 3, "Not judged: the disk is full"),
        (ZeroDivisionError("oh"), 3, "Not judged: ZeroDivisionError: oh"),
    ],
    ids=["interrupt", "cluster", "bug"],
)
@pytest.mark.parametrize("is_planned", [True, False], ids=["planned", "unplanned"])
def test_a_check_that_is_ended_leaves_what_was_judged(
    call,
    capsys,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    why: str,
    is_planned: bool,
) -> None:
    def check_target(target, options, progress, spares, on_end_early) -> Verdict:
        if is_planned:
            left = make_run(Status.ERROR, message=why)
            on_end_early(make_verdict(make_run(), left))
        raise error

    monkeypatch.setattr("distbench.cli.checked.check_target", check_target)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    json, junit = tmp_path / "verdict.json", tmp_path / "junit.xml"
    words = ("--tier", "free", "--json", str(json), "--junit", str(junit))
    assert call("check", "a.b:c", *words) == code
    verdict = verdict_from_json(json.read_text())
    assert verdict.exit_code == 3
    runs = ["pass", "error"] if is_planned else ["error", "error"]
    assert [run.status for run in verdict.runs] == runs
    assert verdict.runs[-1].message == why
    assert len(ElementTree.parse(junit).findall(".//testcase")) == 2
    shown = capsys.readouterr()
    if is_planned:
        assert "1 pass, 1 error" in shown.out
    else:
        # An error is told by itself: a table would say it once more, for each run.
        is_asked = isinstance(error, KeyboardInterrupt)
        assert ("error: 2 error" in shown.out) == is_asked


def test_a_report_that_cannot_be_written_hides_no_error(
    play, call, capsys, tmp_path: Path
) -> None:
    def end(*_: object) -> Verdict:
        folder.rmdir()
        raise ClusterError("the disk is full")

    folder = tmp_path / "gone"
    folder.mkdir()
    play(end)
    assert call("check", "a.b:c", "--json", str(folder / "verdict.json")) == 3
    told = capsys.readouterr().err
    assert "the disk is full" in told
    assert "could not be written" in told


def test_curves_are_written_after_the_report(
    play, call, capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def check_target(target, options, progress) -> Verdict:
        assert options.details
        return make_verdict(make_run())

    def write_summaries(verdict, options, folder) -> None:
        written.append((verdict, folder))
        raise ClusterError("no space left")

    module = types.ModuleType("distbench.summaries")
    module.write_summaries = write_summaries  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "distbench.summaries", module)
    play(check_target)
    folder = tmp_path / "new" / "board"
    assert call("check", "a.b:c", "--tensorboard", str(folder)) == 3
    assert written == [(make_verdict(make_run()), folder)]
    assert "1 pass" in capsys.readouterr().out


@pytest.mark.parametrize(("status", "code"), [("fail", 1), ("pass", 3)])
def test_wrong_numbers_weigh_more_than_a_report_that_cannot_be_written(
    play,
    call,
    capsys,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    status: str,
    code: int,
) -> None:
    """The other reports are written all the same."""
    folder = tmp_path / "gone"
    folder.mkdir()

    def check_target(*_: object) -> Verdict:
        folder.rmdir()
        return make_verdict(make_run(Status(status)))

    play(check_target)
    known = tmp_path / "known.ini"
    known.write_text(
        "[old]\nscenario = *\ncode = scale-error\nreason = x\nuntil = 2020-01-01\n"
    )
    module = types.ModuleType("distbench.summaries")
    written: list[Path] = []
    module.write_summaries = (  # type: ignore[attr-defined]
        lambda _verdict, _options, folder: written.append(folder)
    )
    monkeypatch.setitem(sys.modules, "distbench.summaries", module)
    words = ("--html", str(folder / "page.html"), "--junit", str(tmp_path / "runs.xml"))
    words += ("--tensorboard", str(tmp_path / "board"), "--quarantine", str(known))
    assert call("check", "a.b:c", *words) == code
    told = capsys.readouterr()
    assert "could not be written" in told.err
    assert "ended on" in told.out
    assert written == [tmp_path / "board"]
    ElementTree.parse(tmp_path / "runs.xml")


def test_what_comes_next_is_told_beside_a_report_on_standard_output(
    play, call, capsys, tmp_path: Path
) -> None:
    run = make_run(
        Status.FAIL,
        cluster="mwms:2",
        path="default",
        workload="linear",
        setup={**LINEAR_SETUP, "target": "a.b:c"},
        findings=(make_finding(),),
    )
    play(lambda *_: make_verdict(run))
    words = ("--json", str(tmp_path / "verdict.json"), "--junit", "-")
    assert call("check", "a.b:c", *words) == 1
    told = capsys.readouterr()
    ElementTree.fromstring(told.out)
    assert "distbench debug" in told.err


def test_a_file_is_no_folder_for_curves(play, call, capsys, tmp_path: Path) -> None:
    play(raise_(AssertionError("it was checked")))
    file = tmp_path / "board"
    file.write_text("")
    for place, message in ((file, "is a file"), (file / "x", "takes no files")):
        assert call("check", "a.b:c", "--tensorboard", str(place)) == 2
        assert message in capsys.readouterr().err


def test_progress_goes_to_standard_error(play, call, capsys) -> None:
    def check_target(target, options, progress) -> Verdict:
        progress.plan([Scenario(target="x.py:x", cluster="one")])
        progress.start("x-one")
        return make_verdict(make_run())

    play(check_target)
    call("check", "a.b:c")
    shown = capsys.readouterr()
    assert "[1/1] x-one" in shown.err
    assert "[1/1]" not in shown.out


@pytest.mark.parametrize("words", [(), ("--html", "report.html")], ids=["no", "html"])
def test_numbers_are_kept_for_a_page_alone(
    play, call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = []

    def check_target(target, options, progress) -> Verdict:
        asked.append(options.details)
        return make_verdict(make_run())

    play(check_target)
    assert call("check", "a.b:c", *words) == 0
    assert asked == [bool(words)]
