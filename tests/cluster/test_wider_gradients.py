"""Who reduces gradients may do it in another way where they are large."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import distbench
from distbench.verdict import Run

pytestmark = pytest.mark.cluster
_FAMILIES = Path(__file__).with_name("family_subjects.py")
_OPTIMIZERS = Path(__file__).with_name("larger_optimizers.py")
_PATHS = Path(__file__).with_name("subjects.py")


def check(subject: str, **options: object) -> Run:
    """Check a target on the workloads that nobody asked for; what `linear` shows."""
    verdict = distbench.check(subject, "mirrored:2", tier="bounded", **options)
    (run,) = (run for run in verdict.runs if run.scenario.startswith("linear-"))
    return run


@pytest.mark.first(1)
def test_large_gradients_that_are_reduced_otherwise_are_found() -> None:
    run = check("distbench.faults.parts:PartsAveraged")
    (finding,) = run.findings
    assert (finding.code, finding.variable) == ("mean-instead-of-sum", "hidden/kernel")
    assert (run.status, run.workload) == ("fail", "large")


def test_large_gradients_that_are_summed_pass() -> None:
    run = check("distbench.unusual.parts:LargeOnesInParts")
    assert (run.status, run.workload) == ("pass", "linear")
    assert re.search(r"samples/replicas\.py:\d+ reduces gradients, ", run.message)
    assert run.message.endswith("two of one shape were among those of another run")


@pytest.mark.parametrize(
    ("subject", "path"),
    [
        (f"{_PATHS}:make_adam", "default"),
        (f"{_PATHS}:make_adam", "user"),
        (f"{_PATHS}:make_adam", "aggregator"),
        (f"{_FAMILIES}:make_keras2_adam", "default"),
        (f"{_FAMILIES}:make_keras3_adam", "default"),
        (f"{_OPTIMIZERS}:make_asks_for_a_norm", "default"),
    ],
)
def test_what_keras_or_the_bench_reduces_is_not_run_again(
    subject: str, path: str
) -> None:
    run = check(subject, path=path)
    assert (run.status, run.message) == ("pass", "")
