"""Judging programs whose second loss is made of the sum of their first gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from climbing import Climber, average, note
from grouped_losses import (
    Compute,
    Shards,
    by_statistics,
    mean_by_statistics,
    mean_squares,
    sum_squares,
)
from grouped_training import by_share, lose_last

from distbench.diagnose.judge import judge
from distbench.verdict import Status

KERNEL = "kernel"


@pytest.mark.parametrize(
    ("compute", "weigh"),
    [(by_statistics, lambda *_: 1.0), (mean_by_statistics, by_share)],
)
def test_shards_that_meet_are_the_measure_under_statistics(
    compute: Compute, weigh: Callable[[int, Shards], float]
) -> None:
    evidence = Climber(compute, weigh).make_evidence()
    judgement = judge(note(evidence))
    assert judgement.status is Status.PASS, judgement
    assert "on gradients of all replicas" in judgement.message
    # Where something else than gradients leads a loss, the global batch is meant.
    other = judge(note(evidence, exchange_by_gradients=False))
    assert other.status is Status.FAIL


def test_the_global_batch_stays_the_measure_without_statistics() -> None:
    judgement = judge(note(Climber(sum_squares).make_evidence()))
    assert judgement.status is Status.PASS, judgement
    assert judgement.message == ""


def test_a_mean_on_the_way_up_is_named() -> None:
    judgement = judge(note(Climber(by_statistics, way=average).make_evidence()))
    assert judgement.status is Status.FAIL
    first = judgement.findings[0]
    assert (first.code, first.phase, first.step) == ("mean-instead-of-sum", "loss", 0)
    assert first.ratio == pytest.approx(1 / 3)


def test_a_sum_that_is_wrong_behind_the_climb_is_named() -> None:
    evidence = note(Climber(by_statistics, reduce=lose_last).make_evidence())
    judgement = judge(evidence)
    found = [(finding.code, finding.phase) for finding in judgement.findings]
    assert found == [("replica-dropped", "reduced_gradient")], judgement


def test_losses_that_are_shared_out_wrongly_are_named() -> None:
    """The way up is not that far: what is divided by its norm has no scale."""
    climber = Climber(by_statistics, lambda *_: 3.0, lambda slopes, _: sum(slopes))  # type: ignore[arg-type, return-value]  # NumPy's sum
    judgement = judge(note(climber.make_evidence()))
    assert judgement.findings[0].code == "loss-not-scaled", judgement


def test_what_a_step_leaves_is_held_against_what_shards_that_meet_leave() -> None:
    """Their steps start from what the global batch left, and not from their own."""
    evidence = note(Climber(by_statistics).make_evidence())
    met = evidence.probes["met-sum"]
    for step in (0, 1):
        ends = [
            t.select(step=step, phase="variable") for t in (met, evidence.reference)
        ]
        (_, left), (_, whole) = (next(iter(found)) for found in ends)
        assert np.any(np.asarray(left) != np.asarray(whole))
    climbs = replace(
        evidence, subject=replace(evidence.subject, undetermined=(KERNEL,))
    )
    judgement = judge(climbs)
    assert judgement.status is Status.PASS
    assert judgement.references["variable"] == "one device, the global batch"
    values = dict(climbs.observed.values)
    for key in values:
        if (key.step, key.phase) == (1, "variable"):
            values[key] = np.asarray(values[key]) * np.float32(1.01)
    wrong = replace(climbs, observed=replace(climbs.observed, values=values))
    first = judge(wrong).findings[0]
    assert (first.step, first.phase) == (1, "variable")


def test_a_free_run_is_judged_by_what_follows_from_its_gradients() -> None:
    evidence = note(Climber(by_statistics).make_evidence())
    judgement = judge(replace(evidence, tier="free"))
    assert judgement.status is Status.PASS
    assert "cannot be judged" in judgement.message


@pytest.mark.parametrize(
    ("weigh", "code"),
    [(lambda *_: 1.0, "loss-not-scaled"), (lambda *_: 1 / 3, "mean-of-means")],
)
@pytest.mark.parametrize("compute", [mean_by_statistics, mean_squares])
def test_own_means_on_the_way_up_are_named(
    compute: Compute, weigh: Callable[[int, Shards], float], code: str
) -> None:
    """Uneven shards lead another way: no factor shows what they count."""
    evidence = note(Climber(compute, weigh).make_evidence())
    subject = replace(evidence.subject, loss_reduction="sum")
    judgement = judge(replace(evidence, subject=subject))
    found = {(finding.code, finding.phase) for finding in judgement.findings}
    assert found == {(code, "loss")}, judgement
