"""Steps in flight on real parameter servers: what is lost, extra, or as it should be.

The planted races are certain: each worker writes long after it has read, and as two of
them take steps without a pause, one is always about to write what another has replaced.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import distbench
from distbench.errors import BadInputError
from distbench.selftest.matrix import mark_cell
from distbench.selftest.run import plan_selftest, run_selftest
from distbench.verdict import Run, Status, describe_verdict

pytestmark = pytest.mark.cluster
LONG = pytest.mark.nightly
SUBJECTS = Path(__file__).with_name("subjects.py")
ODD = Path(__file__).with_name("odd_programs.py")


def _fly(name: str, cluster: str, **options) -> Run:
    verdict = distbench.check(f"{SUBJECTS}:{name}", cluster, **options)
    [run] = verdict.runs
    assert run.status is Status.PASS, describe_verdict(verdict)
    return run


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("read-then-assigned", marks=LONG),
        "applied-again",
        pytest.param("counted-by-each-worker", marks=LONG),
    ],
)
def test_a_fault_of_steps_in_flight_is_found_and_named(name: str) -> None:
    (cell,) = run_selftest(plan_selftest([name], ["ps:2+1"])).faults
    assert mark_cell(cell) == "ok", (cell.found, cell.explanation)


@pytest.mark.parametrize(
    "name", ["slow-in-place", pytest.param("program-in-flight", marks=LONG)]
)
def test_correct_steps_in_flight_pass(name: str) -> None:
    (passed,) = run_selftest(plan_selftest([name], ["ps:2+1"])).unusual
    assert passed.status is Status.PASS, passed.found


def test_one_worker_takes_one_step_after_the_other() -> None:
    run = _fly("make_sgd", "ps:1+1", in_flight=4, steps=2)
    assert run.tier == "exact"
    assert run.staleness == (0,) * 8


def test_a_step_between_steps_has_no_place_in_flight() -> None:
    with pytest.raises(BadInputError, match="nothing between steps in flight"):
        distbench.check(f"{ODD}:RaisesInBetween", "ps:1+1", in_flight=2)


def test_the_counting_workload_is_exact_in_lock_step() -> None:
    verdict = distbench.check(f"{SUBJECTS}:make_sgd", "mirrored:2", workload="counting")
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert {run.tier for run in verdict.runs} == {"exact", "bounded"}
    assert all(run.status is Status.PASS for run in verdict.runs)


def test_a_copy_that_is_not_made_anew_is_a_stale_read() -> None:
    plan = plan_selftest(["every-other-step-fetches"], ["ps:1+1"])
    (cell,) = run_selftest(plan).faults
    assert mark_cell(cell) == "ok", (cell.found, cell.explanation)
