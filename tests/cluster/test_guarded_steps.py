"""A guard against what is not finite is asked about it, though nothing overflows."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_run import check_one

pytestmark = pytest.mark.cluster

SCALED = Path(__file__).with_name("scaled_keras3.py")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("subject", "code"),
    [
        ("distbench.faults.loss_scale:OwnOverflowLeftOut", "nonfinite"),
        ("distbench.unusual.loss_scale:OverflowOfSumLeftOut", None),
    ],
)
def test_the_last_replica_overflows_in_another_run(
    subject: str, code: str | None
) -> None:
    run = check_one(subject, workload="linear")
    assert [finding.code for finding in run.findings] == ([code] if code else [])
    assert "one device leaves out a step whose gradients are not finite" in run.message
    assert run.setup["faults"] == (["nan:replica:1@1"] if code else [])


def test_a_guard_is_asked_though_the_whole_batch_overflows() -> None:
    """No replica overflows by itself where one device does."""
    run = check_one("distbench.faults.mixed:HalfWholeOverflowsAskedAlone")
    assert [finding.code for finding in run.findings] == ["nonfinite"]
    assert run.setup["faults"] == ["nan:replica:1@0"]


def test_a_guard_of_single_elements_leaves_out_no_step() -> None:
    subject = "distbench.unusual.loss_scale:ElementsOfSumLeftOut"
    run = check_one(subject, workload="linear")
    assert (run.status, run.message) == ("pass", "")


def test_faults_that_were_asked_for_are_those_that_befall() -> None:
    fault = "nan:replica:0@2"
    subject = "distbench.unusual.loss_scale:OverflowOfSumLeftOut"
    run = check_one(subject, workload="linear", faults=fault)
    assert (run.status, run.setup["faults"]) == ("pass", [fault])


@pytest.mark.nightly
def test_a_step_that_replicas_take_and_one_device_leaves_out_is_wrong() -> None:
    """What follows from the gradient that they took is no excuse for taking it.

    Keras 3 looks for overflow in the first replica's gradients alone.
    """
    run = check_one(
        f"{SCALED}:make_scaled", workload="linear", faults="nan:replica:1@1"
    )
    assert run.status == "fail"
    assert run.findings[0].code == "nonfinite"
    assert run.findings[0].step == 1
