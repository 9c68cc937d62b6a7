"""`distbench repro`, and how a failed check tells of it."""

from __future__ import annotations

import sys

import pytest
from failed_runs import make_failed
from verdict_samples import make_run, make_verdict

from distbench.cli import main
from distbench.repro.case import pick_case
from distbench.repro.script import write_script
from distbench.verdict import Status
from distbench.verdict.document import verdict_to_json


@pytest.fixture
def call(monkeypatch, capsys):
    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["distbench", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
        seen = capsys.readouterr()
        return int(stopped.value.code or 0), seen.out + seen.err

    return run


def test_the_command_writes_the_script(call, tmp_path):
    source, script = tmp_path / "verdict.json", tmp_path / "shown.py"
    verdict = make_verdict(make_failed(), make_failed(None, scenario="b"))
    source.write_text(verdict_to_json(verdict))
    code, printed = call("repro", str(source), "-o", str(script))
    assert code == 0
    assert "shows missing-reduction" in printed
    assert script.read_text() == write_script(pick_case(verdict), verdict.environment)
    code, printed = call("repro", str(source), "-o", str(script), "--only", "b")
    assert (code, "names no number" in printed) == (2, True)


@pytest.mark.parametrize(
    ("run", "is_told"),
    [(make_failed(), True), (make_run(Status.PASS), False)],
    ids=["failed", "passed"],
)
def test_a_failed_check_tells_how_to_get_its_script(
    call, monkeypatch, tmp_path, run, is_told
):
    monkeypatch.setattr(
        "distbench.cli.checked.check_target", lambda *_: make_verdict(run)
    )
    file = tmp_path / "a verdict.json"
    printed = call("check", "a.b:c", "--json", str(file))[1]
    assert (f"distbench repro '{file}' -o shown.py" in printed) == is_told
    assert "distbench repro" not in call("check", "a.b:c")[1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not a verdict"),
        ("[]", "not a verdict: an object was due, and not list."),
        ("{}", "not a verdict: it has no 'schema'."),
        (b"\xff\xfe\x00", "cannot be read"),
        ('{"schema": "distbench/verdict/2"}', "of another schema"),
        (None, "No such file"),
        (verdict_to_json(make_verdict(make_run())), "no finding to show"),
    ],
    ids=["broken", "list", "empty", "binary", "schema", "missing", "passed"],
)
def test_the_command_refuses_what_is_no_failed_verdict(call, tmp_path, content, words):
    source, script = tmp_path / "verdict.json", tmp_path / "shown.py"
    if content is not None:
        source.write_bytes(content if isinstance(content, bytes) else content.encode())
    code, printed = call("repro", str(source), "-o", str(script))
    assert (code, words in printed) == (2, True), printed
    assert printed.count("\n") == 1
    assert not script.exists()
