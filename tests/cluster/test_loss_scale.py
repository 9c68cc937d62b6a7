"""Loss scales: what they do when a gradient overflows, and mistakes with them."""

from __future__ import annotations

from pathlib import Path

import pytest

import distbench
from distbench.selftest.matrix import mark_cell
from distbench.selftest.run import plan_selftest, run_selftest
from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster
LONG = pytest.mark.nightly  # what it shows is shown by a shorter test as well


@LONG
@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        ("last-overflows", "mirrored:2"),
        ("all-overflow", "mwms:2"),
        ("keras2-last-overflows", "mwms:2"),
    ],
)
def test_a_step_that_all_replicas_skip_passes(name: str, cluster: str) -> None:
    """Rows without the overflowing example stay comparable, and so do the slots."""
    (passed,) = run_selftest(plan_selftest([name], [cluster])).unusual
    assert passed.status is Status.PASS, passed.found


@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        pytest.param("keras2-scale-not-undone", "mirrored:2", marks=LONG),
        ("overflow-left-out", "mwms:2"),
    ],
)
def test_a_mistake_with_a_loss_scale_is_named(name: str, cluster: str) -> None:
    (cell,) = run_selftest(plan_selftest([name], [cluster])).faults
    assert mark_cell(cell) == "ok", (cell.found, cell.explanation)


def test_a_replica_that_skips_alone_is_named() -> None:
    verdict = distbench.check(
        "distbench.faults.loss_scale:SkipsAlone", "mirrored:2", tier="bounded"
    )
    (found,) = verdict.findings
    assert (found.code, found.replicas, found.step) == ("nonfinite", (0,), 1)
    assert "of the replicas only replica 1, whose own" in found.explanation


LAST = "distbench.faults.loss_scale:Keras3LastOverflows"


@LONG
def test_keras_3_asks_one_replica_and_its_own_sgd_shows_it() -> None:
    verdict = distbench.check(LAST, "mirrored:2", tier="bounded")
    (found,) = verdict.findings
    assert (found.code, found.phase, found.origin) == ("nonfinite", "slot", "framework")
    assert "gradients of replica 1 alone overflowed" in found.explanation
    assert "dynamic_scale' stayed at 1024" in found.explanation


@LONG
@LONG
def test_so_it_does_where_the_overflow_is_injected() -> None:
    """A workload without an overflow has an exact tier, which the control has not."""
    target = f"{Path(__file__).parent / 'scaled_keras3.py'}:make_scaled"
    verdict = distbench.check(target, "mirrored:2", workload="linear", keras="3")
    assert [run.tier for run in verdict.runs] == ["exact", "bounded"]
    for run in verdict.runs:
        (found,) = run.findings
        assert (found.code, found.origin) == ("nonfinite", "framework"), run


def test_a_scale_whose_optimizer_has_no_slots_tells_of_the_step_by_itself() -> None:
    """Its number and its counter are those of a step that is not skipped."""
    target = Path(__file__).with_name("family_subjects.py")
    verdict = distbench.check(
        f"{target}:make_keras3_scaled_sgd",
        "mirrored:2",
        workload="overflow",
        tier="bounded",
    )
    (found,) = verdict.findings
    assert (found.code, found.phase, found.origin) == ("nonfinite", "slot", "framework")
    assert "none of the replicas, though the gradients of replica 1" in (
        found.explanation
    )


@pytest.mark.nightly  # it waits out two deadlines
def test_workers_that_wait_for_one_that_skipped_are_named() -> None:
    """Keras 3 again: worker 1 skips what worker 0 waits in."""
    verdict = distbench.check(LAST, "mwms:2", tier="bounded", timeout_s=40)
    (found,) = verdict.findings
    assert (found.code, found.origin) == ("collective-mismatch", "framework")
    assert found.step == 1
    assert "worker-0 waits" in found.explanation, describe_verdict(verdict)
    assert "gradients of replica 1 alone overflowed" in found.explanation


def test_workers_that_wait_for_a_slow_one_are_blamed_on_nobody() -> None:
    programs = Path(__file__).with_name("odd_programs.py")
    verdict = distbench.check(
        f"{programs}:SlowWorker", "mwms:2", tier="bounded", timeout_s=7
    )
    assert verdict.status is Status.ERROR, describe_verdict(verdict)
    assert not verdict.findings


def test_what_a_loss_scale_refuses_is_refused() -> None:
    verdict = distbench.check(
        "distbench.unusual.loss_scale:LastOverflows", "central:2", tier="bounded"
    )
    assert {run.status for run in verdict.runs} == {Status.REFUSED}
    assert "Loss scaling is not supported" in verdict.runs[0].message


TWO = Path(__file__).with_name("two_scales.py")


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("LeavesOneOut", ["nonfinite"]),
        ("CountsOneLess", ["nonfinite", "iterations-wrong"]),
    ],
)
def test_a_counter_goes_by_its_own_optimizers_overflow(name: str, codes: list[str]):
    verdict = distbench.check(f"{TWO}:{name}", "mirrored:2", tier="bounded")
    found = [(finding.code, finding.step) for finding in verdict.findings]
    assert found == [(code, 1) for code in codes]
