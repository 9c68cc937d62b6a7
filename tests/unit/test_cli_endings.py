"""How the command line ends: exit codes of statuses, exceptions and signals."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest
from played_checks import answer, raise_
from verdict_samples import make_run, make_verdict

from distbench.errors import BadInputError, ClusterError
from distbench.verdict import Status, Verdict


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


def test_ctrl_c_before_a_command_is_found_is_told_as_later(
    call, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_command() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("distbench.cli.make_command", make_command)
    assert call("check", "a.b:c") == 130
    assert capsys.readouterr().err == "distbench: interrupted\n"


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
    ("error", "advice"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "set TMPDIR"),
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "ulimit -v"),
        (MemoryError("Unable to allocate"), "ulimit -v"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
    ],
    ids=["disk", "files", "memory", "array", "threads"],
)
def test_what_the_machine_lacks_is_no_bug(play, call, capsys, error, advice) -> None:
    play(raise_(error))
    assert call("check", "a.b:c") == 3
    shown = capsys.readouterr().err
    assert str(error) in shown
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
