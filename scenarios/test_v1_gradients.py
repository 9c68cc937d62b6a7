"""Would catch a loss that TensorFlow 1's optimizers scale, or leave, unlike the user.

Gradients of a replica's own mean add up to N times what they should be:
https://github.com/tensorflow/tensorflow/issues/55321. In TensorFlow 2
`compute_gradients` scales a loss only for a strategy in Estimator's mode and after a
reduction that is a mean (`get_loss_reduction` in distribute_utils.py); otherwise never.
"""

from __future__ import annotations

import pytest


@pytest.mark.programs("v1.py", "TellsMean", "DifferentiatesTensor", clusters=["mwms:2"])
def test_what_the_optimizer_differentiates_is_not_scaled(check):
    check(tier="bounded").raise_for_status()


@pytest.mark.programs("v1.py", "Minimizes", clusters=["mirrored:2"])
def test_minimizing_is_differentiating_and_applying(check):
    check(tier="bounded").raise_for_status()


@pytest.mark.programs(
    "v1.py",
    "MeanOverOwnBatch",
    clusters=["mirrored:2"],
    kinds=["mirrored", "central", "mwms"],
)
def test_a_mean_over_the_own_batch_is_named(check):
    (found,) = check(tier="bounded").findings
    assert (found.code, found.origin) == ("loss-not-scaled", "subject")
    assert set(found.variables) >= {"table", "kernel"}


@pytest.mark.programs(
    "v1.py", "ScaledForEstimator", clusters=["mwms:2"], kinds=["mirrored", "mwms"]
)
def test_a_loss_that_both_divide_is_named(check, replicas):
    (found,) = check(tier="bounded").findings
    assert (found.code, found.origin) == ("loss-scaled-twice", "subject")
    assert found.ratio == pytest.approx(1 / replicas, rel=1e-6)
