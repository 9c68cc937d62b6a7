"""Training goes on where a checkpoint left it, on another cluster than before."""

from __future__ import annotations

from pathlib import Path

import pytest

import distbench
from distbench.errors import BadInputError
from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster
LONG = pytest.mark.nightly  # what it shows is shown by a shorter test as well
HERE = Path(__file__).parent
ADAM = f"{HERE.parents[1]}/scenarios/optimizers/adam.py:make_adam"


def _check(target: str, cluster: str, before: str, **options):
    return distbench.check(target, cluster, restore_from=before, **options)


@pytest.mark.parametrize(
    ("target", "before", "cluster", "workload"),
    [
        pytest.param(ADAM, "mirrored:3", "mwms:2", "mlp", marks=LONG),
        (ADAM, "mwms:2", "mwms:2", "embedding"),
        (ADAM, "central:2", "ps:1+1", "linear"),
        pytest.param(
            f"{HERE}/family_subjects.py:make_keras2_sgd",
            "one",
            "mirrored:2",
            "linear",
            marks=LONG,
        ),
        (f"{HERE}/family_subjects.py:make_keras3_sgd", "mwms:2", "one", "linear"),
        (f"{HERE}/family_subjects.py:make_v1_sgd", "mirrored:2", "mwms:2", "linear"),
        pytest.param(
            f"{HERE}/keras_models.py:make_dense",
            "mirrored:2",
            "mwms:2",
            None,
            marks=LONG,
        ),
        (f"{HERE}/keras_models.py:make_keras3", "one", "mirrored:2", None),
        (f"{HERE}/pipelines.py:Sharded", "mirrored:2", "mwms:2", None),
        (f"{HERE}/saved_programs.py:SavedByItself", "mwms:2", "mirrored:3", None),
    ],
)
def test_all_state_survives(
    target: str, before: str, cluster: str, workload: str | None
) -> None:
    verdict = _check(target, cluster, before, workload=workload)
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    (run,) = verdict.runs
    assert run.tier == "bounded"
    assert run.scenario.endswith(f"from-{before}")


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("OptimizerForgotten", {"Adam/dense/kernel/m", "Adam/dense/kernel/v"}),
        ("CounterForgotten", {"Adam/iter"}),
        ("SlotsMadeTooLate", {"Adam/dense/kernel/m", "Adam/dense/kernel/v"}),
    ],
)
def test_state_that_starts_over_is_named(name: str, variables: set[str]) -> None:
    target = f"{HERE}/saved_programs.py:{name}"
    verdict = _check(target, "mirrored:2", "mwms:2")
    assert verdict.status is Status.FAIL, describe_verdict(verdict)
    findings = verdict.runs[0].findings
    assert {finding.code for finding in findings} == {"state-not-restored"}
    named = {v for finding in findings for v in finding.variables}
    assert variables <= named, describe_verdict(verdict)
    assert "dense/kernel" not in named


def test_the_exact_tier_needs_untrained_variables() -> None:
    with pytest.raises(BadInputError, match="exact tier"):
        _check(ADAM, "mwms:2", "mwms:2", tier="exact")
