"""A guard against what is not finite is asked about it, though nothing overflows."""

from __future__ import annotations

import pytest

import distbench


@pytest.mark.parametrize(
    ("subject", "code"),
    [
        ("distbench.faults.loss_scale:OwnOverflowLeftOut", "replica-dropped"),
        ("distbench.unusual.loss_scale:OverflowOfSumLeftOut", None),
    ],
)
def test_the_last_replica_overflows_in_another_run(
    subject: str, code: str | None
) -> None:
    verdict = distbench.check(subject, "mirrored:2", workload="linear", tier="bounded")
    (run,) = verdict.runs
    assert [finding.code for finding in run.findings] == ([code] if code else [])
    assert "one device leaves out a step whose gradients are not finite" in run.message
    assert run.setup["faults"] == (["nan:replica:1@1"] if code else [])


def test_a_guard_of_single_elements_leaves_out_no_step() -> None:
    verdict = distbench.check(
        "distbench.unusual.loss_scale:ElementsOfSumLeftOut",
        "mirrored:2",
        workload="linear",
        tier="bounded",
    )
    (run,) = verdict.runs
    assert (run.status, run.message) == ("pass", "")


def test_faults_that_were_asked_for_are_those_that_befall() -> None:
    fault = "nan:replica:0@2"
    verdict = distbench.check(
        "distbench.unusual.loss_scale:OverflowOfSumLeftOut",
        "mirrored:2",
        workload="linear",
        tier="bounded",
        faults=fault,
    )
    (run,) = verdict.runs
    assert (run.status, run.setup["faults"]) == ("pass", [fault])
