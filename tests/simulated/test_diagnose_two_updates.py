"""A step that updates twice may pair gradients with variables of the other update."""

from __future__ import annotations

import pytest
from evidence_changes import update_in_turn
from planted_case import Case
from planted_faults import CASES
from training_simulator import observe

from distbench.diagnose.judge import judge

PAIRED = [case for case in CASES if case.code == "wrong-pairing"]


@pytest.mark.parametrize("case", PAIRED, ids=lambda case: case.name)
def test_what_goes_to_variables_of_the_other_is_named(case: Case) -> None:
    seen = observe(case.fault, **{**case.setup, "steps": case.steps})
    (finding,) = judge(update_in_turn(seen)).findings
    assert (finding.code, finding.phase) == (case.code, case.phase)
    assert finding.confidence == pytest.approx(1.0)
