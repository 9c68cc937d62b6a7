"""What a check prints besides its verdict: the commands that can go on from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from verdict_samples import LINEAR_SETUP, make_finding, make_run, make_verdict

from distbench.checking.debugging import end_at
from distbench.cli.checked import check_once
from distbench.cli.stops import pick_stop
from distbench.errors import BadInputError, ClusterError
from distbench.observe.debugging import Stopped
from distbench.options import CheckOptions
from distbench.report.forms import Reports
from distbench.stop import Stop
from distbench.target import TargetRef, parse_target
from distbench.verdict import Run, Status, Verdict

TARGET = "a.b:c"


def fail(cluster: str = "mwms:2", *, setup: dict | None = None, **finding) -> Run:
    return make_run(
        Status.FAIL,
        scenario=f"linear-c-{cluster}-default",
        cluster=cluster,
        path="default",
        workload="linear",
        setup={
            **LINEAR_SETUP,
            **(setup or ({"split": [8]} if "ps" in cluster else {})),
        },
        findings=(make_finding(**finding),),
    )


def judge(*runs: Run) -> Verdict:
    return make_verdict(*runs, target=TARGET)


def test_the_first_finding_is_where_to_stop() -> None:
    ref, options, stop = pick_stop(judge(fail(step=2, replicas=(1,), variable="w")))
    assert ref.describe() == TARGET
    assert (options.clusters, options.workloads) == (("mwms:2",), ("linear",))
    wanted = Stop(step=2, phase="reduced_gradient", replica=1, variable="w")
    # Found where steps drew for themselves: they do so again.
    assert stop == replace(wanted, given_draws=False)


@pytest.mark.parametrize(
    ("given", "steps", "faults"),
    [
        ({"restore_from": "one", "restore_after": 2}, 3, ()),
        ({"restore_from": "one", "restore_after": 1}, 2, ()),
        (
            {"faults": ("nan:replica:1@1", "drop:replica:0@2", "kill:worker:1@0")},
            2,
            ("nan:replica:1@1",),
        ),
    ],
    ids=["restored-alike", "restored", "faults"],
)
def test_a_run_that_stops_has_nothing_after_that(
    given: dict, steps: int, faults: tuple[str, ...]
) -> None:
    options = CheckOptions(clusters=("mwms:2",), steps=4, **given)
    ended = end_at(options, Stop(step=1))
    assert (ended.steps, ended.faults) == (steps, faults)


def test_a_step_that_was_given_its_numbers_is_given_them_where_it_stops() -> None:
    run = fail()
    given = replace(run, setup={**run.setup, "given_draws": True})
    *_, stop = pick_stop(judge(given))
    assert stop.given_draws


def test_a_run_that_can_be_stopped_is_looked_for() -> None:
    found = pick_stop(judge(fail("ps:2+1"), fail(code="raises"), fail("mirrored:2")))
    assert found[1].clusters == ("mirrored:2",)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (fail("ps:2+1"), "'ps:2\\+1.* has no step that can be stopped"),
        (fail(code="raises"), "raises has no value to stop at"),
        (fail(code="collective-mismatch", phase="step"), "Received: phase 'step'"),
    ],
    ids=["servers", "raises", "no-phase"],
)
def test_what_has_no_value_to_stop_at_is_told(run: Run, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        pick_stop(judge(run))


@pytest.mark.parametrize(
    ("split", "asked"), [([5, 3], ()), ([8, 0], (8, 0))], ids=["usual", "asked"]
)
def test_the_split_that_was_asked_for_is_kept(split: list, asked: tuple) -> None:
    assert pick_stop(judge(fail(setup={"split": split})))[1].split == asked


@pytest.mark.parametrize(
    ("run", "offered"),
    [
        (fail(), ["debug"]),
        (fail(code="raises"), ["repro"]),
        (fail("ps:2+1", code="raises"), ["repro"]),
        (fail("ps:2+1"), []),
    ],
    ids=["number", "raises", "raises-under-servers", "servers"],
)
def test_only_what_can_go_on_is_offered(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    run: Run,
    offered: list[str],
) -> None:
    """None of them names a number of the outcome, which a script needs."""
    monkeypatch.setattr("distbench.cli.checked.check_target", lambda *_: judge(run))
    reports = Reports(json=tmp_path / "verdict.json")
    check_once(parse_target(TARGET), CheckOptions(), known=(), reports=reports)
    lines = capsys.readouterr().out.splitlines()
    commands = [
        line.split(": distbench ")[1] for line in lines if ": distbench " in line
    ]
    assert [command.split()[0] for command in commands] == offered


def test_a_report_that_cannot_be_written_does_not_hide_the_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def write_report(*_: object) -> None:
        raise ClusterError("no space left")

    monkeypatch.setattr("distbench.cli.checked.check_target", lambda *_: judge(fail()))
    monkeypatch.setattr("distbench.cli.checked.write_report", write_report)
    reports = Reports(json=tmp_path / "verdict.json")
    ref, options = parse_target(TARGET), CheckOptions()
    assert check_once(ref, options, known=(), reports=reports) == 1
    told = capsys.readouterr()
    assert "no space left" in told.err
    assert "missing-reduction" in told.out
    assert str(reports.json) not in told.out


def test_a_target_is_stopped_in_the_scenario_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, call
) -> None:
    asked: list[CheckOptions] = []

    def debug_target(ref: TargetRef, options: CheckOptions, *_: object) -> Stopped:
        asked.append(options)
        return Stopped(stops=1)

    monkeypatch.setattr("distbench.checking.debugging.debug_target", debug_target)
    name = "embedding-c-mwms:2-default"
    assert call("debug", "a.b:c", "--only", name) == 0
    assert [options.only for options in asked] == [name]
