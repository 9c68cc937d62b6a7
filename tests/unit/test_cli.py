"""The command line with a check that is played: options in, exit codes out."""

from __future__ import annotations

import errno
import os
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from verdict_samples import make_finding, make_run, make_verdict

from distbench.cli import main
from distbench.cli.tell import SPECS
from distbench.cluster import ClusterSpec
from distbench.doctor import Check
from distbench.errors import BadInputError, ClusterError
from distbench.options import CheckOptions, Progress
from distbench.scenario import Scenario
from distbench.target import TargetRef
from distbench.verdict import Status, Verdict
from distbench.verdict.document import verdict_from_json

Played = Callable[[TargetRef, CheckOptions, Progress], Verdict]


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


def answer(*runs: object) -> Played:
    return lambda target, options, progress: make_verdict(*runs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("pass", 0),
        ("fail", 1),
        ("error", 3),
        ("undecidable", 4),
        ("vacuous", 4),
        ("skipped", 4),
    ],
)
def test_the_status_is_the_exit_code(
    play, call, capsys, status: str, code: int
) -> None:
    play(answer(make_run(Status(status))))
    assert call("check", "a.b:c") == code
    assert f"1 {status}" in capsys.readouterr().out


def test_every_option_arrives(play, call, tmp_path: Path) -> None:
    seen = []

    def check_target(target, options, progress) -> Verdict:
        seen.append((target, options))
        return make_verdict(make_run())

    play(check_target)
    line = (
        "check a.b:c -c mwms:2 -c ps:2+1 --path user --path none --tier exact "
        "--steps 5 --workload mlp --dtype float64 --seed 4 --split 5,3 --examples 8 "
        "--only some-id --keras legacy --jit on --expect nonfinite --require-gpus 2 "
        f"--timeout 9.5 --keep {tmp_path}/kept"
    )
    assert call(*line.split()) == 0
    [(target, options)] = seen
    assert target.describe() == "a.b:c"
    assert options == CheckOptions(
        clusters=("mwms:2", "ps:2+1"),
        paths=("user", "none"),
        tiers=("exact",),
        steps=5,
        workloads=("mlp",),
        dtype="float64",
        seed=4,
        split=(5, 3),
        examples=8,
        only="some-id",
        keras="legacy",
        jit=True,
        expect=("nonfinite",),
        require_gpus=2,
        timeout_s=9.5,
        keep=tmp_path / "kept",
    )
    assert (tmp_path / "kept").is_dir()


def test_steps_in_flight_are_asked_for(play, call) -> None:
    seen = []
    play(lambda t, options, p: seen.append(options) or make_verdict(make_run()))
    assert call("check", "a.b:c", "-c", "ps:2+1", "--in-flight", "8") == 0
    assert seen == [CheckOptions(clusters=("ps:2+1",), in_flight=8)]
    assert call("check", "a.b:c", "-c", "mwms:2", "--in-flight", "8") == 2


def test_without_options_the_defaults_hold(play, call) -> None:
    seen = []
    play(lambda t, options, p: seen.append(options) or make_verdict(make_run()))
    assert call("check", "a.b:c") == 0
    assert seen == [CheckOptions()]


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


def test_no_report_of_an_earlier_check_stays(play, call, tmp_path: Path) -> None:
    report = tmp_path / "verdict.json"
    report.write_text("{}")
    # A mistyped option is nothing that a check came to.
    assert call("check", "a.b:c", "--json", str(report), "--steps", "0") == 2
    assert report.exists()
    play(raise_(BadInputError("no such attribute")))
    assert call("check", "a.b:c", "--json", str(report)) == 2
    assert not report.exists()


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
    assert {"python", "machine"} <= verdict.environment.keys()


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
    # Where nothing was judged a table has nothing to say.
    assert ("1 pass, 1 error" in shown.out) == is_planned


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


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("check", "Missing argument 'TARGET'"),
        ("check a.b", "names no attribute"),
        ("check no/file.py:x", "no file"),
        ("check a.b:c -c mwm:2", "Did you mean 'mwms:2'"),
        ("check a.b:c -c mwms:2x2@cpu", "mwms:4@cpu"),
        ("check a.b:c --path men", "Aggregation path 'men'"),
        ("check a.b:c --tier exakt", "Did you mean 'exact'"),
        ("check a.b:c --workload x", "Workload 'x'"),
        ("check a.b:c --steps 0", "steps must be 1 or more"),
        ("check a.b:c --steps two", "'two'"),
        ("check a.b:c --timeout long", "'long'"),
        ("trace show x --step first", "'first'"),
        ("check a.b:c --dtype int8", "dtype 'int8'"),
        ("check a.b:c --jit maybe", "--jit must be 'on' or 'off'"),
        ("check a.b:c --split 5+3", "such as 5,3. Received: '5+3'"),
        ("check a.b:c --split \uff15,\uff13", "such as 5,3. Received: "),
        ("check a.b:c --json - --junit -", "Each report needs a file of its own"),
        ("check a.b:c --keras 2", "keras '2'"),
        ("check a.b:c --expect x", "Finding code 'x'"),
        ("check a.b:c --engine rai", "Did you mean 'ray'"),
        ("check a.b:c --timeout 0", "timeout_s must be"),
        ("check a.b:c --json /no/folder/x", "no folder"),
        ("check a.b:c --json x --html ./x", "Each report needs a file of its own"),
        ("check a.b:c --expect xyz", "46 names (see 'distbench list codes').\n"),
        ("check a.b:c --color", "No such option"),
        ("chekc", "No such command"),
        ("explain mean-of-mean", "Did you mean 'mean-of-means'"),
        ("list coeds", "Did you mean 'codes'"),
    ],
)
def test_bad_usage_is_one_clear_message(call, capsys, line: str, message: str) -> None:
    assert call(*line.split()) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


def raise_(error: BaseException) -> Played:
    def check_target(target, options, progress) -> Verdict:
        raise error

    return check_target


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (BadInputError("The factory returned no optimizer."), 2, "no optimizer"),
        (
            ClusterError("worker-1 died", detail="log\ntail"),
            3,
            "worker-1 died\nlog\ntail",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=["input", "cluster", "interrupt"],
)
def test_what_the_check_raises_has_its_exit_code(
    play, call, capsys, error: BaseException, code: int, message: str
) -> None:
    play(raise_(error))
    assert call("check", "a.b:c") == code
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown


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


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP], ids=["term", "hangup"]
)
def test_a_signal_ends_the_check_in_order(play, call, capsys, number) -> None:
    closed = []

    def check_target(target, options, progress) -> Verdict:
        try:
            os.kill(os.getpid(), number)
            raise AssertionError("still running")
        finally:
            closed.append(True)

    play(check_target)
    # Tests may be run by 'nohup', which has it ignored.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        assert call("check", "a.b:c") == 128 + number
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert f"ended by {number.name}" in capsys.readouterr().err
    assert closed


def test_a_signal_that_is_ignored_stays_so(play, call) -> None:
    """As under nohup, which outlives the terminal."""

    def check_target(target, options, progress) -> Verdict:
        os.kill(os.getpid(), signal.SIGHUP)
        return make_verdict(make_run())

    play(check_target)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert call("check", "a.b:c") == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "set TMPDIR"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENOMEM, "ulimit -v"),
    ],
    ids=["disk", "files", "memory"],
)
def test_what_the_machine_lacks_is_no_bug(play, call, capsys, number, advice) -> None:
    play(raise_(OSError(number, os.strerror(number))))
    assert call("check", "a.b:c") == 3
    shown = capsys.readouterr().err
    assert os.strerror(number) in shown
    assert advice in shown
    assert "a bug" not in shown


def test_a_bug_of_ours_is_one_line_and_a_file(
    play, call, capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    play(raise_(ZeroDivisionError("oh")))
    assert call("check", "a.b:c") == 3
    shown = capsys.readouterr().err
    assert "a bug in distbench: ZeroDivisionError: oh" in shown
    assert len(shown.splitlines()) == 1
    [file] = tmp_path.glob("distbench-bug-*.txt")
    assert str(file) in shown
    assert "Traceback" in file.read_text()


def test_help_names_every_option_of_the_contract(call, capsys) -> None:
    assert call("check", "--help") == 0
    shown = capsys.readouterr().out
    names = """-c path tier steps workload dtype seed only keras jit expect
        require-gpus timeout engine json html junit tensorboard"""
    for option in names.split():
        assert (option if option.startswith("-") else f"--{option}") in shown


def test_explain_prints_the_whole_explanation(call, capsys) -> None:
    assert call("explain", "mean-of-means") == 0
    shown = capsys.readouterr().out
    for part in ("Mathematics", "Typically wrong", "Right", "To confirm", "To fix"):
        assert part in shown
    assert "n_r" in shown


LISTED = {
    "scenarios": "aggregator-two-stage",
    "codes": "stale-read",
    "clusters": "ps:2+1",
}


@pytest.mark.parametrize("section", LISTED)
def test_list_prints_a_section(call, capsys, section: str) -> None:
    assert call("list", section) == 0
    shown = capsys.readouterr().out
    assert [name for name, part in LISTED.items() if part in shown] == [section]


def test_list_prints_all_sections(call, capsys) -> None:
    assert call("list") == 0
    shown = capsys.readouterr().out
    assert all(part in shown for part in LISTED.values())


def test_version(call, capsys) -> None:
    assert call("--version") == 0
    assert capsys.readouterr().out.startswith("distbench ")


@pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, 3)], ids=["fit", "unfit"])
def test_the_doctor_names_what_is_missing(
    call, capsys, monkeypatch: pytest.MonkeyPatch, ok: bool, code: int
) -> None:
    checks = [
        Check(name="python", ok=True, found="3.11"),
        Check(name="ports", ok=ok, found="127.0.0.1"),
    ]
    monkeypatch.setattr("distbench.doctor.PROBES", (lambda: checks,))
    assert call("doctor") == code
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("ok  python")
    assert shown[1].startswith("ok  ports" if ok else "NO  ports")


@pytest.mark.parametrize("spec", SPECS)
def test_listed_clusters_are_valid(spec: str) -> None:
    assert str(ClusterSpec.parse(spec)) == spec
