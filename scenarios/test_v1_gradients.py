"""Would catch a loss that TensorFlow 1's optimizers scale, or leave, unlike the user.

Gradients of a replica's own mean add up to N times what they should be:
https://github.com/tensorflow/tensorflow/issues/55321. In TensorFlow 2
`compute_gradients` scales a loss only for a strategy in Estimator's mode and after a
reduction that is a mean (`get_loss_reduction` in distribute_utils.py); otherwise never.
"""

from __future__ import annotations

from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs" / "v1.py"


@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        ("TellsMean", "mwms:2"),
        ("DifferentiatesTensor", "mirrored:2"),
        ("Minimizes", "mwms:2"),
    ],
)
def test_what_the_optimizer_differentiates_is_not_scaled(distbench, name, cluster):
    verdict = distbench.check(f"{PROGRAMS}:{name}", cluster, tier="bounded")
    verdict.raise_for_status()
    assert all(run.checked > 100 for run in verdict.runs)


@pytest.mark.parametrize(
    ("name", "cluster", "code", "ratio"),
    [
        ("MeanOverOwnBatch", "mirrored:2", "loss-not-scaled", None),
        ("ScaledForEstimator", "mwms:2", "loss-scaled-twice", 0.5),
    ],
)
def test_a_loss_scaled_wrongly_is_named(distbench, name, cluster, code, ratio):
    verdict = distbench.check(f"{PROGRAMS}:{name}", cluster, tier="bounded")
    (found,) = verdict.findings
    assert (found.code, found.origin) == (code, "subject")
    assert set(found.variables) >= {"table", "kernel"}
    if ratio is not None:
        assert found.ratio == pytest.approx(ratio, rel=1e-6)
