"""What the bench finds in optimizers from PyPI holds without them, by stand-ins."""

from __future__ import annotations

from pathlib import Path

import pytest

import distbench
from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster
LONG = pytest.mark.nightly  # what it shows is shown by a shorter test as well
SUBJECTS = Path(__file__).with_name("third_party_subjects.py")


def _check(name: str, cluster: str):
    return distbench.check(f"{SUBJECTS}:{name}", cluster, workload="linear")


def test_a_slot_that_the_framework_does_not_find_is_its_fault() -> None:
    verdict = _check("make_adam_inside_tensorflow", "mirrored:2")
    assert verdict.status is Status.FAIL
    for run in verdict.runs:
        first = run.findings[0]
        found = (first.code, first.phase, first.replicas, first.origin)
        assert found == ("raises", "applied_gradient", (1,), "framework")
        assert "KeyError" in first.explanation


def test_a_program_with_such_an_optimizer_is_not_blamed_for_it() -> None:
    target = f"{SUBJECTS}:LineWithAdamInsideTensorflow"
    verdict = distbench.check(target, "mirrored:2")
    assert verdict.status is Status.FAIL
    for run in verdict.runs:
        first = run.findings[0]
        assert (first.code, first.origin) == ("raises", "framework")


@pytest.mark.parametrize("cluster", ["one", "mwms:2"])
def test_the_same_optimizer_passes_with_one_replica_in_a_process(cluster: str) -> None:
    verdict = _check("make_adam_inside_tensorflow", cluster)
    assert verdict.status is Status.PASS, describe_verdict(verdict)


@pytest.mark.parametrize("name", ["make_clipping_adam", "make_hook_clipping_adam"])
@pytest.mark.parametrize("cluster", [pytest.param("mirrored:2", marks=LONG), "mwms:2"])
def test_clipping_each_replicas_gradients_is_named(name: str, cluster: str) -> None:
    verdict = _check(name, cluster)
    assert verdict.status is Status.FAIL
    for run in verdict.runs:
        first = run.findings[0]
        found = (first.code, first.phase, first.replicas, first.origin)
        assert found == (
            "clip-before-reduction",
            "reduced_gradient",
            (0, 1),
            "subject",
        ), describe_verdict(verdict)
        assert first.variable == "kernel"
        assert "global norm" in first.explanation


@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        ("make_clipping_adam", "one"),
        ("make_adam_that_need_not_clip", "mirrored:2"),
    ],
)
def test_without_a_second_replica_or_the_clip_it_passes(
    name: str, cluster: str
) -> None:
    verdict = _check(name, cluster)
    assert verdict.status is Status.PASS, describe_verdict(verdict)
