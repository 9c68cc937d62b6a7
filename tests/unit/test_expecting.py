"""Deviations that the caller means let a run pass."""

from __future__ import annotations

import pytest
from verdict_samples import make_finding, make_run

from distbench.checking.expecting import apply_expectations
from distbench.checking.runs import tell_injury
from distbench.verdict import Run, Status

FINDING = make_finding(code="clip-before-reduction")
OTHER = make_finding(code="nonfinite")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("", "as expected: clip-before-reduction"),
        ("note: as it is", "note: as it is; as expected: clip-before-reduction"),
        (
            tell_injury("ps-0 was killed", ""),
            "On purpose ps-0 was killed. as expected: clip-before-reduction",
        ),
    ],
)
def test_expected_codes_let_a_run_pass_and_stay_visible(said: str, words: str) -> None:
    run = make_run(Status.FAIL, findings=(FINDING,), message=said)
    judged = apply_expectations(run, ["clip-before-reduction"])
    assert judged.status is Status.PASS
    assert judged.findings == (FINDING,)
    assert judged.message == words


@pytest.mark.parametrize(
    "run",
    [
        make_run(Status.FAIL, findings=(FINDING, OTHER)),
        make_run(Status.FAIL),
        make_run(Status.ERROR, findings=(FINDING,)),
    ],
    ids=["another-code-too", "no-finding", "error"],
)
def test_anything_not_expected_stays_as_it_was(run: Run) -> None:
    assert apply_expectations(run, ["clip-before-reduction"]) == run
