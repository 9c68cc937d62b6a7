"""A clip that no gradient of a run needs may still come before the sum."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_run import check_one

import distbench
from distbench.errors import BadInputError
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


@pytest.mark.first(1)
@pytest.mark.parametrize(
    "name", ["ClipsSumOfMicroStepsFirst", "ClipsFirst", "ClipsFirstBehindATanh"]
)
def test_a_clip_of_a_programs_own_gradients_is_found(name: str) -> None:
    """By larger ones; of micro-steps and behind a tanh larger data show none."""
    run = check(name)
    assert [finding.code for finding in run.findings] == ["clip-before-reduction"]
    assert run.setup["loss_weight"] == 1024
    assert run.message.endswith("so gradients were 1024 times as large in another run")


@pytest.mark.nightly
def test_a_clip_that_a_run_needs_hides_nothing() -> None:
    assert _NOTE not in check("ClipsSmallMicroStepsFirst").message


def test_a_weight_that_was_asked_for_is_taken() -> None:
    run = check("make_clips_first", workload="linear", loss_weight=256.0)
    assert [finding.code for finding in run.findings] == ["clip-before-reduction"]
    assert run.setup["loss_weight"] == 256


@pytest.mark.nightly
def test_what_tapes_give_unseen_cannot_be_multiplied() -> None:
    target, options = f"{_OPTIMIZERS}:ClipsFirst", {"in_flight": 3, "loss_weight": 4.0}
    with pytest.raises(BadInputError, match=r"cannot be multiplied.*Received: 4\."):
        distbench.check(target, ["ps:2+1"], tiers=["bounded"], **options)
