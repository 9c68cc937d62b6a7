"""A clip that every gradient of a run needs hides what the sum was divided by."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_run import check_one

from distbench.verdict import Run

pytestmark = pytest.mark.cluster
_OPTIMIZERS = Path(__file__).with_name("smaller_optimizers.py")
_NOTE = "note: one device makes the same of gradients that are N times as large"


def check(name: str, **options: object) -> Run:
    return check_one(f"{_OPTIMIZERS}:{name}", **options)


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("make_averages_clips", 32),
        pytest.param("make_averages_clips_far", 1024, marks=pytest.mark.nightly),
    ],
)
def test_a_mean_before_a_clip_is_found(name: str, times: int) -> None:
    run = check(name, workload="linear")
    assert [finding.code for finding in run.findings] == ["mean-instead-of-sum"]
    assert run.setup["loss_weight"] == 1 / times
    assert run.message.startswith(_NOTE)


@pytest.mark.parametrize(
    ("workload", "times"),
    [("linear", 32), pytest.param("embedding", 1024, marks=pytest.mark.nightly)],
)
def test_a_sum_before_a_clip_passes(workload: str, times: int) -> None:
    run = check("make_sums_clips", workload=workload)
    assert (run.status, run.setup["loss_weight"]) == ("pass", 1)
    assert run.message.endswith(f"so losses were {times} times smaller in another run")


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", ["make_normalises", "make_takes_signs", "make_sums_clips_later"]
)
def test_what_shows_sizes_or_never_does_is_not_run_again(name: str) -> None:
    run = check(name, workload="linear")
    assert run.status == "pass"
    assert _NOTE not in run.message


@pytest.mark.nightly
def test_a_mean_before_a_programs_own_clip_is_found() -> None:
    run = check("AveragesClips")
    assert [finding.code for finding in run.findings] == ["mean-instead-of-sum"]
    assert run.setup["loss_weight"] == 1 / 32


@pytest.mark.nightly
def test_what_is_no_number_has_not_lost_its_size() -> None:
    run = check("make_spoils", workload="linear")
    assert run.status == "vacuous"
    assert "its gradient is finite, so look at what is made of that" in run.message
    assert _NOTE not in run.message
