"""State and decisions that no step of a check changes, and a later one does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from one_run import check_one

import distbench
from distbench.verdict import Run

pytestmark = pytest.mark.cluster

LONG = pytest.mark.nightly  # what it shows is shown by a shorter test as well
_PROGRAMS = Path(__file__).with_name("late_programs.py")


def check(name: str, **options: object) -> Run:
    return check_one(f"{_PROGRAMS}:{name}", **options)


def _find_line(text: str) -> int:
    lines = _PROGRAMS.read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)


@LONG
def test_as_many_steps_are_taken_as_slow_weights_need() -> None:
    run = check("make_slow", workload="linear")
    assert (run.status, run.setup["steps"]) == ("pass", 12)
    assert "first changes in step 5, so 12 steps were taken in place of" in run.message


def test_fewer_are_taken_where_that_is_asked_for() -> None:
    run = check("make_slow", workload="linear", steps=3)
    assert (run.status, run.setup["steps"]) == ("pass", 3)
    assert "first changes in step 5, after the last one of this run" in run.message


@LONG
@pytest.mark.parametrize(
    ("name", "status"), [("make_mean", "pass"), ("make_mean_by_replicas", "fail")]
)
def test_what_a_last_step_begins_is_seen_to_go_on(name: str, status: str) -> None:
    run = check(name, workload="linear")
    assert (run.status, run.setup["steps"]) == (status, 5)
    assert [(f.code, f.step) for f in run.findings] == [
        ("hyperparameter-differs", 3) for _ in run.findings
    ]
    assert "first changes in step 2, so 5 steps were taken in place of 3" in run.message


def test_what_would_show_that_is_said_where_steps_are_asked_for() -> None:
    run = check("make_mean_by_replicas", workload="linear", steps=3)
    assert (run.status, run.setup["steps"]) == ("pass", 3)
    assert "the last one of this run; 5 steps show what comes next" in run.message


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("Above", 41),
        ("Untaken", 40),
        ("Countdown", 40),
        ("OfKeras", 40),
        *(pytest.param(name, 40, marks=LONG) for name in ("Below", "Once", "Warm")),
    ],
)
def test_a_comparison_that_turns_far_away_is_told(name: str, step: int) -> None:
    run = check_one(f"{_PROGRAMS}:{name}")
    assert run.status == "pass"
    assert f"changes in step {step}, and no step from there on" in run.message


@LONG
@pytest.mark.parametrize(
    ("name", "status"), [("Copied", "pass"), ("CopiedHalf", "fail")]
)
def test_what_is_done_between_steps_counts_as_well(name: str, status: str) -> None:
    run = check(name)
    assert (run.status, run.setup["steps"]) == (status, 10)
    assert [(f.step, f.variable) for f in run.findings] == [
        (4, "target") for _ in run.findings
    ]


@pytest.mark.parametrize(
    ("name", "status"), [("Warming", "pass"), ("WarmingByReplicas", "fail")]
)
def test_another_rule_from_some_step_on_is_seen(name: str, status: str) -> None:
    run = check(name)
    assert (run.status, run.setup["steps"]) == (status, 6)
    assert [(f.code, f.step) for f in run.findings] == [
        ("mean-instead-of-sum", 4) for _ in run.findings
    ]
    line = (
        rf"late_programs\.py:{_find_line('taken < 4')} decides first changes in step 4"
    )
    assert re.search(line, run.message)


def test_no_more_steps_are_taken_than_there_is_data_for() -> None:
    run = check("CopiedInTheLastStepThereIs")
    assert (run.status, run.setup["steps"]) == ("fail", 4)


@pytest.mark.parametrize("name", ["CopiedWhileThereIsData", "NeverCopied"])
def test_nothing_is_said_of_steps_that_nobody_takes(name: str) -> None:
    run = check(name)
    assert (run.status, run.setup["steps"]) == ("pass", 3)
    assert not run.message


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("make_rarely_set", 3),
        pytest.param("make_rarely_set_in_keras3", 3, marks=LONG),
        ("make_rarely_set_and_kept", 7),
    ],
)
def test_what_each_step_begins_anew_does_not_change_late(name: str, steps: int) -> None:
    run = check(name)
    assert (run.status, run.setup["steps"]) == ("pass", steps)
    assert ("positives/total' first changes in step 5" in run.message) == (steps > 3)


@LONG
@pytest.mark.parametrize("name", ["UpdatesInTurn", "UpdatesInTurnLater"])
def test_an_update_may_be_left_out_of_several(name: str) -> None:
    """What goes on from it takes that of the steps which make it."""
    verdict = distbench.check(f"{_PROGRAMS}:{name}", "one", tier="bounded")
    assert verdict.status == "pass"
