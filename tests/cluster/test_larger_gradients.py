"""A clip that no gradient of a run needs may still come before the sum."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_run import check_one

from distbench.verdict import Run

pytestmark = pytest.mark.cluster
_OPTIMIZERS = Path(__file__).with_name("larger_optimizers.py")
_NOTE = "note: one device changes larger gradients between its tape and its update"


def check(name: str, **options: object) -> Run:
    return check_one(f"{_OPTIMIZERS}:{name}", **options)


@pytest.mark.nightly
def test_a_clip_before_the_sum_is_found() -> None:
    run = check("make_clips_first", workload="linear")
    assert [finding.code for finding in run.findings] == ["clip-before-reduction"]
    assert run.setup["loss_weight"] == 1024
    assert run.message.startswith(_NOTE)


def test_a_clip_behind_the_sum_passes() -> None:
    run = check("make_sums_first", workload="linear")
    assert (run.status, run.setup["loss_weight"]) == ("pass", 1)
    assert run.message.endswith("so losses were 1024 times as large in another run")


@pytest.mark.nightly
def test_losses_of_the_users_own_stay_as_they_are() -> None:
    run = check("ClipsFirst")
    assert run.status == "pass"
    assert run.message.startswith(_NOTE)
    assert "is not known" in run.message


@pytest.mark.first(1)
@pytest.mark.parametrize("name", ["ClipsSumOfMicroStepsFirst", "ClipsFirstBehindATanh"])
def test_what_a_larger_batch_does_not_show_larger_gradients_do(name: str) -> None:
    run = check(name)
    assert run.status == "pass"
    assert run.message.startswith(_NOTE)


@pytest.mark.nightly
def test_a_clip_that_a_run_needs_hides_nothing() -> None:
    assert _NOTE not in check("ClipsSmallMicroStepsFirst").message


def test_a_weight_that_was_asked_for_is_taken() -> None:
    run = check("make_clips_first", workload="linear", loss_weight=256.0)
    assert [finding.code for finding in run.findings] == ["clip-before-reduction"]
    assert run.setup["loss_weight"] == 256
