"""Programs that refuse their examples in another order are held against all else."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_run import check_one

pytestmark = pytest.mark.cluster

_PROGRAMS = Path(__file__).with_name("ordered_programs.py")


@pytest.mark.parametrize(
    ("name", "code"),
    [("InOrderOfTime", None), ("DividesByOwnExamples", "loss-not-scaled")],
)
def test_a_program_that_takes_one_order_alone_is_judged(
    name: str, code: str | None
) -> None:
    run = check_one(f"{_PROGRAMS}:{name}")
    assert [finding.code for finding in run.findings] == ([code] if code else [])
    assert run.status == ("fail" if code else "pass")


def test_other_shards_keep_the_order_of_the_batch() -> None:
    """It is they that show that the grouping matters to a program."""
    run = check_one(f"{_PROGRAMS}:TextsOfTwoWords")
    assert run.status == "pass", run.findings
    assert "which examples are together in a batch" in run.message


def test_rounding_that_hangs_on_the_order_is_no_matter_of_order() -> None:
    run = check_one(f"{_PROGRAMS}:ShiftsBeforeBatchStatistics")
    assert run.status == "pass", run.findings
    assert "which examples are together in a batch, so" in run.message
