"""Gradients of own means, which weights make right, and mistakes with the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from gradient_values import Gradients, add_up, scale
from planted_case import check_passed
from simulated_rule import Rule
from training_simulator import TRAINED, Fault, observe
from wrong_steps import clip_global

from distbench.diagnose.judge import judge
from distbench.diagnose.judgement import Judgement
from distbench.evidence import Evidence

SHARDS = (7, 5, 3)
N, G = len(SHARDS), sum(SHARDS)
SHARES = [size / G for size in SHARDS]
WRONG = [0.2, 0.3, 0.5]
RULE = Rule(name="momentum")


def weigh(weights: Sequence[float]) -> Callable[..., list[Gradients]]:
    """The sum of gradients that count so much each."""

    def reduce(own: Sequence[Gradients], step: int) -> list[Gradients]:
        weighted = [
            {path: scale(value, weight) for path, value in gradients.items()}
            for weight, gradients in zip(weights, own, strict=True)
        ]
        return [add_up(weighted)] * N

    return reduce


def take_mean(gradients: Gradients, r: int, step: int) -> Gradients:
    """The gradient of the own mean, of a share of the whole."""
    return {path: scale(value, 1 / SHARES[r]) for path, value in gradients.items()}


def observe_means(fault: Fault) -> Evidence:
    return observe(fault, replicas=N, shards=SHARDS, shards_known=False, rule=RULE)


def judge_means(reduce: Callable[..., list[Gradients]]) -> Judgement:
    """Each gradient is that of the own mean; the losses that are shown are shares."""
    return judge(observe_means(Fault(local=take_mean, reduce=reduce)))


@pytest.mark.parametrize(
    ("factor", "code"),
    [(1 / N, "mean-instead-of-sum"), (N, "double-reduction"), (0.7, "scale-error")],
)
def test_a_factor_of_a_weighted_sum_is_none_of_its_addends(factor, code):
    (finding,) = judge_means(weigh([factor * share for share in SHARES])).findings
    assert (finding.code, finding.phase) == (code, "reduced_gradient")
    assert finding.variables == TRAINED
    assert finding.ratio == pytest.approx(factor, rel=1e-4)
    assert finding.confidence > 0.999


def test_other_weights_are_told_beside_the_right_ones():
    (finding,) = judge_means(weigh(WRONG)).findings
    assert (finding.code, finding.phase) == ("scale-error", "reduced_gradient")
    assert "weigh 0.2, 0.3, 0.5 in place of 0.4667, 0.3333, 0.2" in finding.explanation


def test_right_weights_pass():
    check_passed(judge_means(weigh(SHARES)))


@pytest.mark.parametrize(
    ("reduce", "code"),
    [
        (weigh([1.0] * N), "loss-not-scaled"),
        (weigh([1 / N] * N), "mean-of-means"),
        (weigh([1.0, 0.0, 1.0]), "loss-not-scaled"),
        (lambda own, step: own, "loss-not-scaled"),
        (clip_global, "mean-of-means"),
    ],
    ids=["summed", "averaged", "dropped", "not-summed", "clipped"],
)
def test_means_that_nothing_weighs_are_wrong_themselves(reduce, code):
    first = judge_means(reduce).findings[0]
    assert (first.code, first.phase) == (code, "local_gradient")


@pytest.mark.parametrize(
    ("of_loss", "phases"),
    [(WRONG, ["reduced_gradient"]), ([0.1, 0.2, 0.7], ["loss", "reduced_gradient"])],
    ids=["alike", "other"],
)
def test_a_loss_of_the_same_weights_is_the_same_mistake(of_loss, phases):
    fault = Fault(
        local=take_mean,
        reduce=weigh(WRONG),
        loss=lambda loss, r: scale(loss, of_loss[r] / SHARES[r]),
    )
    findings = judge(observe_means(fault)).findings
    assert [finding.phase for finding in findings] == phases
    assert findings[-1].code == "scale-error"
