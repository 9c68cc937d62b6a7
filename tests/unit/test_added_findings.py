"""What is found besides the steps' own comparisons has its place among the rest."""

from __future__ import annotations

import pytest
from verdict_samples import make_finding

from distbench.diagnose.judge import _add, _add_apart
from distbench.diagnose.judgement import Judgement
from distbench.trace import INITIAL
from distbench.verdict import Finding, Status

START = make_finding(code="initial-value-differs", phase="variable", step=INITIAL)
LOSS = make_finding(code="loss-not-scaled", phase="loss", step=0)
SUM = make_finding(code="missing-reduction", phase="reduced_gradient", step=0)
LATER = make_finding(code="scale-error", phase="local_gradient", step=1)
WARNED = make_finding(
    code="lower-precision", phase="reduced_gradient", step=0, warning=True
)
FOUND = (START, LOSS, SUM, LATER, WARNED)


def name(judgement: Judgement) -> list[str]:
    return [finding.code for finding in judgement.findings]


@pytest.mark.parametrize(
    ("phase", "step", "warning", "place"),
    [
        ("loss", 0, False, 1),
        ("reduced_gradient", 0, False, 2),
        ("slot", 0, False, 3),
        ("slot", 1, False, 4),
        ("loss", 0, True, 4),
        ("slot", 0, True, 5),
    ],
)
def test_a_finding_goes_before_what_is_wrong_no_sooner(
    phase: str, step: int, warning: bool, place: int
) -> None:
    added = make_finding(code="wrong-pairing", phase=phase, step=step, warning=warning)
    judgement = _add(Judgement(status=Status.FAIL, findings=FOUND), added)
    assert name(judgement).index("wrong-pairing") == place
    assert [f for f in judgement.findings if f is not added] == list(FOUND)


def test_several_of_one_place_keep_their_order() -> None:
    codes = ("examples-repeated", "examples-missed")
    added = [make_finding(code=code, phase="loss", step=0) for code in codes]
    judgement = _add(Judgement(status=Status.FAIL, findings=(LOSS,)), *added)
    assert name(judgement) == [*codes, "loss-not-scaled"]


@pytest.mark.parametrize(
    ("status", "finding", "ended", "message"),
    [
        (Status.PASS, LOSS, Status.FAIL, "said"),
        (Status.VACUOUS, LOSS, Status.FAIL, ""),
        (Status.UNDECIDABLE, LOSS, Status.FAIL, ""),
        (Status.FAIL, LOSS, Status.FAIL, "said"),
        (Status.VACUOUS, WARNED, Status.VACUOUS, "said"),
        (Status.PASS, WARNED, Status.PASS, "said"),
    ],
)
def test_a_fault_ends_what_was_said_for_lack_of_one(
    status: Status, finding: Finding, ended: Status, message: str
) -> None:
    judgement = _add(Judgement(status=status, message="said"), finding)
    assert (judgement.status, judgement.message) == (ended, message)


def test_what_losses_read_apart_is_not_meant() -> None:
    meant = Judgement(status=Status.PASS, message="said", doubtful=1, of_own=True)
    judgement = _add_apart(meant, LOSS)
    assert (judgement.status, judgement.message) == (Status.FAIL, "")
    assert (judgement.doubtful, judgement.of_own) == (None, False)
