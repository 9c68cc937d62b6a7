"""Faults that users inject into real clusters: what right and careful subjects do."""

from __future__ import annotations

import re
from typing import Any

import guarded_programs
import pytest

import distbench
from distbench import Fault
from distbench.errors import BadInputError
from distbench.verdict import Run, Status, describe_verdict
from distbench.verdict.document import verdict_to_json

pytestmark = pytest.mark.cluster
LONG = pytest.mark.nightly
_STEP = 1


def check(subject: str, cluster: str, *faults: Fault, **options: Any) -> Run:
    made = getattr(guarded_programs, subject)
    if subject.startswith("make"):
        options = {"workload": "linear", **options}
    verdict = distbench.check(
        made, cluster, faults=faults, **{"tier": "bounded", **options}
    )
    (run,) = verdict.runs
    assert run.setup["faults"] == [str(fault) for fault in faults]
    assert all(str(fault) in verdict_to_json(verdict) for fault in faults)
    assert run.status is not Status.FAIL or run.findings, describe_verdict(verdict)
    return run


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault.kill(1, _STEP), "was killed by SIGKILL"),
        (Fault.stop(1, _STEP), "was stopped by a signal"),
    ],
    ids=str,
)
def test_a_lost_worker_ends_the_run_and_its_fault_is_named(
    fault: Fault, words: str
) -> None:
    run = check("make_sgd", "mwms:2", fault)
    assert run.status is Status.ERROR
    pattern = rf"On purpose worker-1 .*Task worker-1 .*{words}.*step 1.*: the injected"
    assert re.search(pattern, run.message), run.message
    assert run.message.endswith(f"fault {fault}.")
    assert run.findings == ()


@LONG
@pytest.mark.parametrize("cluster", ["mwms:2", "mirrored:2", "ps:2+1"])
def test_a_delay_changes_no_number(cluster: str) -> None:
    role = "ps" if cluster.startswith("ps") else "worker"
    run = check("make_sgd", cluster, Fault.delay(0, _STEP, 0.6, role=role))
    assert run.status is Status.PASS
    assert "was sent SIGSTOP with step 1 and went on after 0.6 s" in run.message


@LONG
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault.kill(1, _STEP), "was sent SIGKILL with step 1"),
        (Fault.kill(1, _STEP, restart=True), "it was started again"),
        (Fault.stop(0, _STEP, until=2), "was sent SIGSTOP with step 1"),
    ],
    ids=str,
)
def test_under_parameter_servers_training_goes_on_and_is_judged(
    fault: Fault, words: str
) -> None:
    run = check("make_sgd", "ps:2+1", fault)
    assert run.status is Status.PASS, run
    assert words in run.message
    assert run.checked > 0


@LONG
def test_a_lost_parameter_server_is_an_error_and_not_the_subjects() -> None:
    run = check("make_sgd", "ps:2+1", Fault.kill(0, _STEP, role="ps"))
    assert run.status is Status.ERROR
    assert run.message.startswith("On purpose ps-0 was sent SIGKILL with step 1.")


@pytest.mark.parametrize(
    ("subject", "cluster"),
    [
        pytest.param("make_loss_scale", "mwms:2", marks=LONG),
        pytest.param("make_loss_scale", "mirrored:2", marks=LONG),
        ("Guarded", "mirrored:2"),
    ],
)
def test_who_leaves_a_corrupt_step_out_passes(subject: str, cluster: str) -> None:
    run = check(subject, cluster, Fault.corrupt(1, _STEP))
    assert run.status is Status.PASS, run
    assert run.message == "On purpose replica 1 got NaN in its gradients in step 1."


@pytest.mark.parametrize(
    "subject",
    ["Trusting", "make_sgd"],
)
def test_who_takes_nan_as_it_is_fails_at_that_step_and_replica(subject: str) -> None:
    run = check(subject, "mirrored:2", Fault.corrupt(1, _STEP))
    assert run.status is Status.FAIL
    first = run.findings[0]
    assert (first.code, first.phase) == ("nonfinite", "local_gradient")
    assert (first.step, first.replicas, first.origin) == (_STEP, (1,), "subject")


@LONG
def test_a_guard_of_one_replica_alone_loses_its_examples() -> None:
    run = check("GuardedAlone", "mirrored:2", Fault.corrupt(1, _STEP))
    assert run.status is Status.FAIL
    assert run.findings[0].step == _STEP


@LONG
@pytest.mark.parametrize("subject", ["make_sgd", "Trusting"])
@pytest.mark.parametrize(
    ("fault", "code", "phase"),
    [
        (Fault.corrupt(1, _STEP, factor=3.0), "scale-error", "local_gradient"),
        (Fault.corrupt(1, _STEP, bit=30), "unexplained", "local_gradient"),
        (Fault.drop(1, _STEP), "examples-missed", "loss"),
    ],
    ids=str,
)
def test_numbers_that_come_wrong_are_found_where_they_do(
    subject: str, fault: Fault, code: str, phase: str
) -> None:
    run = check(subject, "mwms:2", fault)
    assert run.status is Status.FAIL
    first = run.findings[0]
    assert (first.code, first.phase) == (code, phase)
    assert (first.step, first.replicas) == (_STEP, (1,))
    if fault.kind == "scale":
        assert first.ratio == pytest.approx(3.0)


@LONG
def test_one_ulp_is_found_where_nothing_rounds() -> None:
    run = check("make_sgd", "mirrored:2", Fault.corrupt(1, _STEP, bit=0), tier="exact")
    assert run.status is Status.FAIL
    assert (run.findings[0].step, run.findings[0].replicas) == (_STEP, (1,))


@LONG
def test_who_raises_on_a_corrupt_gradient_raises() -> None:
    run = check("Raising", "mirrored:2", Fault.corrupt(1, _STEP))
    assert run.status is Status.FAIL
    assert run.findings[0].code == "raises"
    assert "a bad gradient" in run.findings[0].explanation
    assert run.message.startswith("On purpose replica 1 got NaN")


@LONG
def test_a_bit_that_a_gradient_does_not_have_is_refused() -> None:
    with pytest.raises(BadInputError, match="has the bits 0 to 31"):
        check("Trusting", "mirrored:2", Fault.corrupt(1, _STEP, bit=32))
