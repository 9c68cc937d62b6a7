"""`distbench bisect` of checks that nobody runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from verdict_samples import make_finding, make_run, make_verdict

from distbench import environments
from distbench.cli.bisect import bisect
from distbench.errors import BadInputError
from distbench.verdict import Finding, Run, Status


def make_environment(**packages: str) -> environments.Environment:
    return environments.Environment(
        place=Path("e"), python=Path("p"), packages=packages
    )


def run_bisect(monkeypatch: pytest.MonkeyPatch, good: Run, bad: Run) -> int:
    ran = [
        environments.Ran(verdict=make_verdict(run), traces={}) for run in (good, bad)
    ]
    monkeypatch.setattr(environments, "find_environment", lambda _: make_environment())
    monkeypatch.setattr(environments, "check_under", lambda *_: ran.pop(0))
    return bisect("a.b:c", Path("good"), Path("bad"))


def test_what_was_compared_nowhere_is_neither_alike_nor_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(Status.SKIPPED, message="need data that does not round, have other")
    assert run_bisect(monkeypatch, run, run) == 4
    told = "Nothing was compared: need data that does not round, have other"
    assert told in capsys.readouterr().out


def test_what_raises_under_both_is_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(Status.FAIL, findings=(make_finding(code="raises"),))
    assert run_bisect(monkeypatch, run, run) == 0


@pytest.mark.parametrize(
    ("finding", "code"),
    [
        (make_finding(code="scale-error", ratio=1.0001), 1),
        (make_finding(code="lower-precision", warning=True), 0),
    ],
    ids=["failure", "warning"],
)
def test_what_one_check_alone_fails_is_not_alike_whatever_the_traces_say(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    finding: Finding,
    code: int,
) -> None:
    status = Status.PASS if finding.warning else Status.FAIL
    failed = make_run(status, findings=(finding,))
    assert run_bisect(monkeypatch, make_run(), failed) == code
    told = "Found under bad and not under good, in mlp-adam-mwms:2-none: Step 0: nobody"
    assert (told in capsys.readouterr().out) == bool(code)


@pytest.mark.parametrize("is_bad", [True, False])
def test_what_one_version_alone_refuses_is_not_alike(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_bad: bool
) -> None:
    ran = [make_run(), make_run(Status.REFUSED, message="NotImplementedError: no")]
    good, bad = ran if is_bad else reversed(ran)
    environment = make_environment()
    traces = {("mlp-adam-mwms:2-none", "bounded"): {}}
    results = [
        environments.Ran(
            verdict=make_verdict(run),
            traces=traces if run.status is Status.PASS else {},  # type: ignore[arg-type]  # nobody reads them
        )
        for run in (good, bad)
    ]
    monkeypatch.setattr(environments, "find_environment", lambda _: environment)
    monkeypatch.setattr(environments, "check_under", lambda *_: results.pop(0))
    assert bisect("a.b:c", Path("good"), Path("bad")) == 1
    told = "good is executed, and bad refused"
    assert (told in capsys.readouterr().out) == is_bad


def test_what_a_step_computes_with_is_told_before_other_packages() -> None:
    good = make_environment(attrs="1", tensorflow="2.19", keras="3.1", rich="13")
    bad = make_environment(click="8", tensorflow="2.21", keras="3.2", rich="14")
    assert environments.list_changes(good, bad) == [
        "tensorflow 2.19 -> 2.21",
        "keras 3.1 -> 3.2",
        "rich 13 -> 14",
        "attrs 1 -> nothing",
        "click nothing -> 8",
    ]


def test_a_refused_check_is_told_without_its_progress(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = "1 scenario\n[1/1] a ...\ndistbench: Subject 'a' fails.\nAdvice."
    monkeypatch.setattr(environments, "_run", lambda *_: (2, said))
    with pytest.raises(
        BadInputError, match=r"^Under 'e': Subject 'a' fails.\nAdvice.$"
    ):
        environments.check_under(make_environment(), (), tmp_path, 1.0)
