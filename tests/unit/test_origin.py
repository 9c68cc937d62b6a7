"""Whose fault a finding is."""

from __future__ import annotations

import pytest
from verdict_samples import make_finding

from distbench.checking.origin import find_origins, may_be_framework, plan_control
from distbench.scenario import Scenario
from distbench.target import TargetRef

STOCK = TargetRef(kind="import", module="stock", attribute="make")


def make_scenario(**changed: object) -> Scenario:
    return Scenario(target="a:b", **changed)  # type: ignore[arg-type]  # by the cases


def test_what_the_control_shows_too_is_the_frameworks() -> None:
    ours = make_finding(code="missing-reduction", phase="reduced_gradient")
    other = make_finding(code="scale-error", phase="reduced_gradient")
    elsewhere = make_finding(code="missing-reduction", phase="variable")
    found = find_origins((ours, other, elsewhere), (ours,))
    assert [f.origin for f in found] == ["framework", "subject", "subject"]


@pytest.mark.parametrize(
    ("workload", "path", "phase", "expected"),
    [
        ("linear", "default", "loss", True),
        ("linear", "none", "reduced_gradient", False),
        ("", "default", "loss", False),
        ("", "default", "local_gradient", False),
        ("", "default", "reduced_gradient", True),
        ("", "default", "slot", True),
    ],
)
def test_what_a_program_computes_by_itself_needs_no_control(
    workload: str, path: str, phase: str, expected: bool
) -> None:
    scenario = make_scenario(workload=workload, path=path)
    finding = make_finding(phase=phase)
    assert may_be_framework(scenario, [finding]) is expected


@pytest.mark.parametrize(
    ("workload", "is_sparse", "expected"),
    [
        ("mlp", True, "mlp"),
        ("", True, "embedding"),
        ("", False, "linear"),
    ],
)
def test_a_programs_control_has_the_same_kind_of_gradients(
    workload: str, is_sparse: bool, expected: str
) -> None:
    scenario = make_scenario(workload=workload, seed=7)
    control = plan_control(scenario, STOCK, is_sparse=is_sparse)
    assert (control.workload, control.seed) == (expected, 7)
    assert control.target == STOCK.describe()


def test_of_a_race_either_outcome_is_the_same_fault() -> None:
    ours = make_finding(code="lost-update", phase="variable")
    counted = make_finding(code="iterations-wrong", phase="iterations")
    theirs = make_finding(code="unexplained", phase="slot")
    found = find_origins((ours, counted), (theirs,), by_chance=True)
    assert [f.origin for f in found] == ["framework", "subject"]
    assert find_origins((ours,), (theirs,))[0].origin == "subject"
