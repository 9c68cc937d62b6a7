"""Judging programs whose result depends on grouping, on order or on chance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from grouped_losses import (
    SHARDS,
    Compute,
    against_the_others,
    by_statistics,
    by_statistics_with_penalty,
    mean_by_statistics,
    mean_squares,
    penalty_by_count,
    penalty_by_count_and_replicas,
    statistics_beside_even_share,
    statistics_beside_mean,
    statistics_beside_share,
    statistics_beside_small_share,
    sum_beside_divided,
    sum_beside_divided_by_all,
    sum_beside_even_share,
    sum_beside_logarithm,
    sum_beside_mean,
    sum_beside_share,
    sum_of_steps_by_spread,
    sum_of_unit_step,
    sum_squares,
    with_constant_pull,
    with_penalty,
)
from grouped_training import KERNEL, LAST, Simulator, by_share, lose_last, lose_sum

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey
from distbench.verdict import Status


@pytest.mark.first(6)
@pytest.mark.parametrize(
    ("simulator", "note"),
    [
        (Simulator(by_statistics), "compared with its own shard"),
        (Simulator(mean_by_statistics, by_share), "compared with its own shard"),
        (Simulator(against_the_others), "cannot be judged"),
        (Simulator(mean_squares, by_share, last=LAST), "step 2 has 3 + 1 + 1"),
        (Simulator(sum_squares, last=(3, 0, 0)), "step 2 has 3 + 0 + 0"),
        (Simulator(mean_by_statistics, by_share, last=LAST), "with its own shard"),
        (Simulator(by_statistics, order_matters=True), "cannot be judged"),
        (Simulator(sum_squares, scatter=0.3), "draws random numbers"),
        (Simulator(by_statistics, scatter=0.3), "note"),
        (Simulator(sum_squares, dropped=0.3), "compared with its own shard"),
        (Simulator(mean_squares, by_share, dropped=0.3), "with its own shard"),
        (Simulator(with_penalty, lambda *_: 1.0, dropped=0.3), "cannot be judged"),
        (Simulator(sum_squares), ""),
        (Simulator(sum_beside_mean, on_cluster=sum_beside_share), ""),
    ],
)
def test_a_correct_program_passes(simulator: Simulator, note: str) -> None:
    judgement = judge(simulator.make_evidence())
    assert judgement.status is Status.PASS, judgement
    assert note in judgement.message


@pytest.mark.parametrize(
    ("compute", "code"),
    [
        (sum_beside_divided, "loss-not-scaled"),
        (sum_beside_logarithm, "unexplained"),
    ],
)
def test_what_follows_from_the_number_of_examples_is_held_against_all(
    compute: Compute, code: str
) -> None:
    """Uneven shards are no reason to take it for a matter of which are together."""
    judgement = judge(Simulator(compute).make_evidence())
    first = judgement.findings[0]
    assert (first.code, first.phase) == (code, "loss"), first.explanation
    if code == "loss-not-scaled":
        assert "N^2 = 9" in first.explanation


@pytest.mark.parametrize(
    ("on_cluster", "times"),
    [(None, "N^2 = 9 times"), (penalty_by_count_and_replicas, "N = 3 times")],
)
def test_a_penalty_by_the_number_of_own_examples_is_none_of_theirs(
    on_cluster: Compute | None, times: str
) -> None:
    simulator = Simulator(penalty_by_count, on_cluster=on_cluster)
    first = judge(simulator.make_evidence()).findings[0]
    assert first.code == "regularizer-not-scaled", first.explanation
    assert times in first.explanation


def test_what_is_divided_by_the_number_of_all_passes() -> None:
    simulator = Simulator(sum_beside_divided, on_cluster=sum_beside_divided_by_all)
    judgement = judge(simulator.make_evidence())
    assert (judgement.status, judgement.message) == (Status.PASS, "")


def test_terms_of_both_kinds_each_have_their_share() -> None:
    simulator = Simulator(statistics_beside_mean, on_cluster=statistics_beside_share)
    judgement = judge(simulator.make_evidence())
    assert judgement.status is Status.PASS, judgement
    assert "compared with its own shard" in judgement.message


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("on_cluster", "weight", "code"),
    [
        (statistics_beside_mean, 1.0, "loss-not-scaled"),
        (statistics_beside_even_share, 1.0, "mean-of-means"),
        (statistics_beside_mean, 1 / len(SHARDS), "loss-scaled-twice"),
        (statistics_beside_small_share, 1.0, "loss-scaled-twice"),
    ],
)
def test_what_is_wrong_of_one_of_them_is_named(
    on_cluster: Compute, weight: float, code: str
) -> None:
    judgement = judge(
        Simulator(
            statistics_beside_mean, lambda *_: weight, on_cluster=on_cluster
        ).make_evidence()
    )
    (finding,) = judgement.findings
    assert (finding.code, finding.phase) == (code, "loss")
    assert "two kinds" in finding.explanation


def test_what_is_neither_a_sum_nor_a_mean_is_not_taken_apart() -> None:
    """Replicas that hand over what their shards alone give, and no sum it is."""
    evidence = Simulator(against_the_others).make_evidence()
    still = {"draws": {}}
    evidence = replace(
        evidence,
        observed=replace(evidence.observed, notes=still),
        reference=replace(evidence.reference, notes=still),
        probes={"doubled": evidence.probes["doubled"]},
    )
    judgement = judge(evidence)
    assert judgement.status is Status.FAIL
    (finding,) = judgement.findings
    assert (finding.code, finding.phase) == ("unexplained", "loss")
    assert "has what its shard alone gives" in finding.explanation


@pytest.mark.first(6)
@pytest.mark.parametrize(
    ("simulator", "code", "phase"),
    [
        (Simulator(mean_by_statistics), "loss-not-scaled", "loss"),
        (Simulator(sum_of_unit_step), "clip-before-reduction", "local_gradient"),
        (Simulator(sum_of_steps_by_spread), "loss-not-scaled", "local_gradient"),
        (Simulator(sum_beside_mean), "loss-not-scaled", "loss"),
        (Simulator(with_constant_pull), "regularizer-not-scaled", "local_gradient"),
        (
            Simulator(sum_beside_mean, on_cluster=sum_beside_even_share),
            "mean-of-means",
            "loss",
        ),
        (Simulator(sum_beside_mean, lambda *_: 1 / 3), "loss-scaled-twice", "loss"),
        (
            Simulator(mean_by_statistics, lambda *_: 1 / len(SHARDS)),
            "mean-of-means",
            "loss",
        ),
        (
            Simulator(by_statistics, lambda *_: 1 / len(SHARDS)),
            "loss-scaled-twice",
            "loss",
        ),
        (
            Simulator(by_statistics_with_penalty),
            "regularizer-not-scaled",
            "local_gradient",
        ),
        (Simulator(by_statistics, lambda *_: 1.3), "scale-error", "loss"),
        (
            Simulator(by_statistics, lambda r, _: 2.0 if r == 1 else 1.0),
            "scale-error",
            "loss",
        ),
        (
            Simulator(sum_squares, lambda *_: 1 / 3, scatter=0.02),
            "loss-scaled-twice",
            "loss",
        ),
        (
            Simulator(by_statistics, reduce=lose_sum),
            "missing-reduction",
            "reduced_gradient",
        ),
        (
            Simulator(against_the_others, reduce=lose_last),
            "replica-dropped",
            "reduced_gradient",
        ),
        (
            Simulator(sum_squares, reduce=lose_sum, scatter=0.3),
            "missing-reduction",
            "reduced_gradient",
        ),
        (
            Simulator(sum_squares, lambda *_: 3.0, scatter=0.02),
            "loss-not-scaled",
            "loss",
        ),
        (
            Simulator(sum_squares, lambda *_: 3.0, dropped=0.3),
            "loss-not-scaled",
            "loss",
        ),
        (Simulator(mean_squares, dropped=0.3), "loss-not-scaled", "loss"),
        (
            Simulator(mean_squares, lambda *_: 1 / len(SHARDS), dropped=0.3),
            "mean-of-means",
            "loss",
        ),
    ],
)
def test_a_wrong_one_is_named(simulator: Simulator, code: str, phase: str) -> None:
    judgement = judge(simulator.make_evidence())
    assert judgement.status is Status.FAIL
    first = judgement.findings[0]
    assert (first.code, first.phase) == (code, phase), first.explanation


def add_statistic(evidence: Evidence, wrong_by: float) -> Evidence:
    """Give the program a moving mean, which no gradient feeds."""
    moving = replace(KERNEL, path="moving", shape=(2,), trainable=False)

    def add(trace: Trace, replicas: tuple[int, ...], shift: float = 0.0) -> Trace:
        values = dict(trace.values)
        for step in (INITIAL, 0, 1, 2):
            now = np.array([1.0, 2.0]) + step + 1 + (0 if step == INITIAL else shift)
            for replica in replicas:
                key = TraceKey(
                    step=step, phase="variable", variable="moving", replica=replica
                )
                values[key] = now.astype(np.float32)
        return replace(trace, values=values, variables=(KERNEL, moving))

    return replace(
        evidence,
        reference=add(evidence.reference, (WHOLE,)),
        observed=add(evidence.observed, tuple(range(len(SHARDS))), wrong_by),
        twins=tuple(add(twin, (WHOLE,)) for twin in evidence.twins),
    )


@pytest.mark.parametrize("wrong_by", [0.0, 0.25])
def test_shards_excuse_no_state_of_a_program_that_does_not_depend_on_groups(
    wrong_by: float,
) -> None:
    judgement = judge(add_statistic(Simulator(sum_squares).make_evidence(), wrong_by))
    if not wrong_by:
        assert judgement.status is Status.PASS
        return
    assert judgement.status is Status.FAIL
    first = judgement.findings[0]
    assert (first.code, first.variable) == ("statistics-not-synchronized", "moving")


def test_losses_that_are_averaged_add_up_to_that_of_their_shards() -> None:
    """Each replica reports the loss of all, and trains on its share."""
    evidence = Simulator(by_statistics).make_evidence()
    total = {
        step: sum(
            evidence.observed.values[key]
            for key in evidence.observed.values
            if (key.step, key.phase) == (step, "loss")
        )
        for step in range(3)
    }
    told = {
        key: np.float32(total[key.step]) if key.phase == "loss" else value
        for key, value in evidence.observed.values.items()
    }
    evidence = change_evidence(
        evidence,
        observed=replace(evidence.observed, values=told),
        loss_reduction="mean",
    )
    assert judge(evidence).status is Status.PASS
    doubled = {k: 2 * v if k.phase == "loss" else v for k, v in told.items()}
    observed = replace(evidence.observed, values=doubled)
    judgement = judge(replace(evidence, observed=observed))
    assert judgement.findings[0].code == "loss-misreported"


def test_what_nothing_can_be_held_against_says_which_tier_can_judge_it() -> None:
    """A free run feeds no update: it spoke of gradients that are 0."""
    evidence = Simulator(against_the_others).make_evidence()
    assert judge(evidence).status is Status.PASS
    judgement = judge(change_evidence(evidence, tier="free", replays={}))
    assert judgement.status is Status.VACUOUS
    assert "which examples are together" in judgement.message
    assert "use the tier bounded" in judgement.message
