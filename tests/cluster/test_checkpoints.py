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
FAMILIES = f"{HERE}/family_subjects.py:make"
ADAM = f"{HERE.parents[1]}/scenarios/optimizers/adam.py:make_adam"


def _check(target: str, cluster: str, before: str, **options):
    return distbench.check(target, cluster, restore_from=before, **options)


@pytest.mark.parametrize(
    ("target", "before", "cluster", "workload"),
    [
        pytest.param(ADAM, "mirrored:3", "mwms:2", "mlp", marks=LONG),
        (ADAM, "mwms:2", "mwms:2", "embedding"),
        (ADAM, "central:2", "ps:1+1", "linear"),
        (f"{HERE}/family_subjects.py:make_keras2_adam", "one", "mirrored:2", "linear"),
        (f"{HERE}/family_subjects.py:make_keras3_adam", "mwms:2", "one", "linear"),
        (f"{HERE}/family_subjects.py:make_v1_adam", "mirrored:2", "mwms:2", "linear"),
        (f"{HERE}/keras_models.py:make_dense", "mirrored:2", "mwms:2", None),
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
    ("target", "before", "cluster", "workload"),
    [
        pytest.param(ADAM, "mirrored:3", "mwms:2", "embedding", marks=LONG),
        pytest.param(
            f"{FAMILIES}_keras2_adam", "ps:2+1", "central:2", "linear", marks=LONG
        ),
        pytest.param(
            f"{FAMILIES}_keras3_adam", "mirrored:3", "mwms:2", "linear", marks=LONG
        ),
        pytest.param(
            f"{FAMILIES}_v1_adam", "mwms:2", "mirrored:3", "linear", marks=LONG
        ),
        pytest.param(
            f"{HERE}/saved_programs.py:SlotsMadeTooLate",
            "mwms:2",
            "mirrored:2",
            None,
            marks=LONG,
        ),
    ],
)
def test_all_state_survives_where_there_was_other_state(
    target: str, before: str, cluster: str, workload: str | None
) -> None:
    """The optimizer has trained a step of its own: its slots exist, and are others."""
    verdict = _check(target, cluster, before, workload=workload, restore_after=1)
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert verdict.runs[0].scenario.endswith(f"from-{before}-after-1")


@pytest.mark.parametrize(
    ("name", "after"),
    [
        pytest.param("Halved", 0, marks=LONG),
        pytest.param("Halved", 1, marks=LONG),
        pytest.param("HalvedKeras2", 0, marks=LONG),
        pytest.param("HalvedKeras2", 1, marks=LONG),
        pytest.param("HalvedKeras3", 0, marks=LONG),
        ("HalvedKeras3", 1),
    ],
)
def test_a_rate_survives_that_was_changed(name: str, after: int) -> None:
    target = f"{HERE}/saved_programs.py:{name}"
    verdict = _check(target, "mirrored:3", "mirrored:2", restore_after=after)
    assert verdict.status is Status.PASS, describe_verdict(verdict)


@pytest.mark.parametrize("name", ["PartlyBuilt", "PartlyBuiltV1"])
def test_slots_survive_of_which_some_exist(name: str) -> None:
    target = f"{HERE}/saved_programs.py:{name}"
    verdict = _check(target, "mirrored:3", "mirrored:2")
    assert verdict.status is Status.PASS, describe_verdict(verdict)


@pytest.mark.parametrize(
    ("name", "after", "variables"),
    [
        ("OptimizerForgotten", 0, {"Adam/dense/kernel/m", "Adam/dense/kernel/v"}),
        (
            "OptimizerForgotten",
            1,
            {"Adam/dense/kernel/m", "Adam/dense/kernel/v", "Adam/iter"},
        ),
        ("CounterForgotten", 0, {"Adam/iter"}),
        ("AverageForgotten", 0, {"average"}),
        ("SlotsMadeTooLate", 0, {"Adam/dense/kernel/m", "Adam/dense/kernel/v"}),
        ("RateForgotten", 1, {"Adam/learning_rate"}),
        ("SavesKernelSlots", 0, {"Adam/dense/bias/m", "Adam/dense/bias/v"}),
    ],
)
def test_state_that_starts_over_is_named(
    name: str, after: int, variables: set[str]
) -> None:
    target = f"{HERE}/saved_programs.py:{name}"
    verdict = _check(target, "mirrored:2", "mwms:2", restore_after=after)
    assert verdict.status is Status.FAIL, describe_verdict(verdict)
    findings = verdict.runs[0].findings
    assert {finding.code for finding in findings} == {"state-not-restored"}
    named = {v for finding in findings for v in finding.variables}
    assert variables <= named, describe_verdict(verdict)
    assert "dense/kernel" not in named


def test_the_exact_tier_needs_untrained_variables() -> None:
    with pytest.raises(BadInputError, match="exact tier"):
        _check(ADAM, "mwms:2", "mwms:2", tier="exact")
