"""What an optimizer does to gradients of N times their shares, which are averaged."""

from __future__ import annotations

from pathlib import Path

import pytest

import distbench
from distbench.verdict import Status, Verdict, describe_verdict

pytestmark = pytest.mark.cluster

OPTIMIZERS = Path(__file__).parent / "averaging_optimizers.py"


def _check(name: str, cluster: str) -> Verdict:
    subject = f"{OPTIMIZERS}:{name}"
    return distbench.check(subject, cluster, path="aggregator-mean", workload="mlp")


@pytest.mark.nightly
@pytest.mark.parametrize("cluster", ["mirrored:2", "mwms:3"])
def test_a_loss_of_n_times_its_share_is_no_deviation_there(cluster: str) -> None:
    verdict = _check("Plain", cluster)
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert not any(run.message for run in verdict.runs)


@pytest.mark.parametrize(
    ("name", "code", "ratio"),
    [
        ("SummedAgain", "double-reduction", 3.0),
        ("Summed", "double-reduction", 3.0),
        ("Own", "missing-reduction", None),
        ("DividedAgain", "mean-instead-of-sum", 1 / 3),
        ("WithoutSecond", "replica-dropped", None),
        ("ClippedApart", "clip-before-reduction", None),
    ],
)
def test_what_is_wrong_with_the_average_is_told_and_not_the_loss(
    name: str, code: str, ratio: float | None
) -> None:
    verdict = _check(name, "mirrored:3")
    (finding,) = verdict.findings
    assert (finding.code, finding.phase) == (code, "reduced_gradient")
    assert finding.confirmed, describe_verdict(verdict)
    assert ratio is None or finding.ratio == pytest.approx(ratio, rel=1e-5)
