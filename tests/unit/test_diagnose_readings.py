"""Judging programs whose result depends on grouping, on order or on chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from grouped_training import (
    KERNEL,
    LAST,
    SHARDS,
    WIDTH,
    Batch,
    Compute,
    Simulator,
    against_the_others,
    by_first_share,
    by_share,
    by_statistics,
    by_statistics_with_penalty,
    mean_by_statistics,
    mean_by_weight,
    mean_squares,
    squares_in_half,
    statistics_beside_even_share,
    statistics_beside_mean,
    statistics_beside_share,
    statistics_beside_small_share,
    sum_beside_even_share,
    sum_beside_mean,
    sum_beside_share,
    sum_squares,
    with_constant_pull,
    with_penalty,
)
from training_simulator import Rule, observe

from distbench.compare.comparison import Judged, compare_evidence
from distbench.compare.nature import find_nature
from distbench.compare.noise import Noise, measure_noise
from distbench.compare.shards import weigh_shards
from distbench.diagnose.judge import judge
from distbench.diagnose.links import Chain
from distbench.diagnose.stages import explain_chain
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey
from distbench.verdict import Finding, Status


def find(simulator: Simulator) -> tuple[bool, str | None]:
    evidence = simulator.make_evidence()
    nature = find_nature(evidence, measure_noise(evidence))
    return nature.grouped, nature.kind


@pytest.mark.parametrize(
    "compute",
    [sum_squares, with_penalty, mean_squares, mean_by_weight, sum_beside_mean],
)
def test_sums_and_means_over_examples_do_not_depend_on_groups(compute: Compute) -> None:
    assert not find(Simulator(compute))[0]


@pytest.mark.parametrize(
    ("compute", "kind"),
    [
        (by_statistics, "sum"),
        (mean_by_statistics, "mean"),
        (by_statistics_with_penalty, "sum"),
        (statistics_beside_mean, "terms"),
        (against_the_others, None),
    ],
)
def test_statistics_and_contrasts_do(compute: Compute, kind: str | None) -> None:
    assert find(Simulator(compute)) == (True, kind)


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
    "compute", [by_statistics, against_the_others], ids=["known", "unknown"]
)
def test_nothing_explains_a_whole_batch_that_is_no_measure(
    compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large model that takes longer than all the rest."""
    asked = []

    def count(_: Evidence, chain: Chain) -> tuple[Finding, ...]:
        asked.append(chain.broken)
        return ()

    monkeypatch.setattr("distbench.diagnose.weighed.explain_chain", count)
    assert judge(Simulator(compute).make_evidence()).status is Status.PASS
    assert asked == [()]


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


def compute_in_half(simulator: Simulator) -> Evidence:
    """The same of a program whose narrowest dtype is float16."""
    evidence = simulator.make_evidence()
    notes = {**evidence.reference.notes, "narrowest": "float16"}
    return replace(evidence, reference=replace(evidence.reference, notes=notes))


def test_shards_that_weigh_other_than_their_examples_are_no_measure() -> None:
    """Each divides by its own weights, and counts as its number of examples does."""
    assert judge(compute_in_half(Simulator(mean_squares, by_share))).status is (
        Status.PASS
    )
    judgement = judge(compute_in_half(Simulator(mean_by_weight, by_share)))
    assert judgement.status is Status.FAIL
    (finding,) = judgement.findings
    assert (finding.code, finding.phase) == ("mean-of-means", "loss")


def clip(total: Batch) -> Batch:
    """A clip by the norm."""
    return total * np.float32(0.25 / max(np.linalg.norm(total), 0.25))


def test_that_no_sum_was_compared_is_said() -> None:
    """Of a rule that is no scaling nothing says what the shards' sum comes to."""
    simulator = Simulator(against_the_others, hand_on=np.sign)
    judgement = judge(simulator.make_evidence())
    assert "the reduction was not compared" in judgement.message
    plain = judge(Simulator(against_the_others).make_evidence())
    assert "the reduction was not compared" not in plain.message


def skip_overflow(total: Batch) -> Batch:
    return total if np.isfinite(total).all() else np.zeros_like(total)


def lose_last(parts: list[Batch], _: int) -> Batch:
    return np.asarray(sum(parts[:-1]))


def lose_overflow(parts: list[Batch], _: int) -> Batch:
    return np.asarray(sum(map(skip_overflow, parts)))


@pytest.mark.parametrize(
    "simulator",
    [
        Simulator(squares_in_half, hand_on=clip),
        Simulator(squares_in_half, hand_on=skip_overflow, spoilt=0),
        Simulator(by_statistics, hand_on=skip_overflow, spoilt=0),
    ],
)
def test_what_follows_from_the_sum_of_shards_passes(simulator: Simulator) -> None:
    judgement = judge(compute_in_half(simulator))
    assert judgement.status is Status.PASS, judgement
    assert "compared with its own shard" in judgement.message


@pytest.mark.parametrize(
    ("simulator", "code", "step"),
    [
        (
            Simulator(squares_in_half, reduce=lose_overflow, spoilt=0, hand_on=hand_on),
            "replica-dropped",
            1,
        )
        for hand_on in (skip_overflow, lambda total: clip(skip_overflow(total)))
    ],
)
def test_what_does_not_is_named(simulator: Simulator, code: str, step: int) -> None:
    judgement = judge(compute_in_half(simulator))
    assert judgement.status is Status.FAIL, judgement
    first = judgement.findings[0]
    assert (first.code, first.phase, first.step) == (code, "reduced_gradient", step)


@pytest.mark.first(1)
@pytest.mark.parametrize("compute", [by_statistics, against_the_others])
def test_a_sum_that_is_scaled_afterwards_has_its_direction(compute: Compute) -> None:
    """One device shows a factor in each step, and of groups it says no more."""
    assert judge(Simulator(compute, hand_on=clip).make_evidence()).status is Status.PASS
    judgement = judge(
        Simulator(compute, reduce=lose_last, hand_on=clip).make_evidence()
    )
    first = judgement.findings[0]
    assert (first.code, first.phase) == ("replica-dropped", "reduced_gradient")
    assert first.replicas == (len(SHARDS) - 1,)


def test_a_step_that_is_left_out_is_no_proof_of_the_others() -> None:
    """All lose it there, so a lost example or replica would not show."""
    simulator = Simulator(squares_in_half, hand_on=skip_overflow, spoilt=0)
    evidence = compute_in_half(simulator)
    noise = measure_noise(evidence)
    weighed = weigh_shards(evidence, find_nature(evidence, noise))
    assert weighed.settled == {1}
    with np.errstate(all="ignore"):
        found = [item.comparison for item in compare_evidence(weighed, noise)]
    told = [(c.step, c.phase) for c in found if c.relation == "reference"]
    proof = {
        (c.step, c.phase) for c in found if c.relation == "reference" and c.effective
    }
    assert {(1, "reduced_gradient"), (1, "variable")} <= {*told} - proof
    assert (0, "reduced_gradient") in proof


def leave_gradients(trace: Trace) -> Trace:
    return trace


def double_each_step(trace: Trace) -> Trace:
    """The gradients of the tapes as under a loss scale, which is divided out later."""
    values = {
        key: value * np.float32(2.0**key.step)
        if key.phase == "local_gradient"
        else value
        for key, value in trace.values.items()
    }
    return replace(trace, values=values)


@pytest.mark.parametrize(
    ("part", "code"),
    [(1 / len(SHARDS), None), (1.0, "regularizer-not-scaled")],
    ids=["share", "whole"],
)
@pytest.mark.parametrize("scale", [leave_gradients, double_each_step])
def test_a_small_penalty_beside_what_is_lost_is_known(
    part: float, code: str | None, scale: Callable[[Trace], Trace]
) -> None:
    """Less than rounding may take of a gradient; a doubled shard has it once.

    Whatever the loss scale of a step is: of each step it is told anew.
    """

    def compute(batch: Batch, theta: Batch, part: float = 1.0) -> tuple[float, Batch]:
        loss, gradient = squares_in_half(batch, theta)
        weight = np.float32(0.01 * part)
        return loss + float(weight * (theta @ theta)) / 2, gradient + weight * theta

    simulator = Simulator(compute, on_cluster=lambda b, t: compute(b, t, part))
    evidence = compute_in_half(simulator).change_traces(scale)
    probes = {name: scale(trace) for name, trace in evidence.probes.items()}
    judgement = judge(replace(evidence, probes=probes))
    if code is None:
        assert judgement.status is Status.PASS, judgement.findings
    else:
        assert judgement.findings[0].code == code


def test_a_whole_batch_with_wrong_losses_is_compared_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = []

    def compare(evidence: Evidence, noise: Noise) -> tuple[Judged, ...]:
        compared.append(evidence.shards_known)
        return compare_evidence(evidence, noise)

    monkeypatch.setattr("distbench.diagnose.weighed.compare_evidence", compare)
    assert judge(Simulator(by_statistics).make_evidence()).status is Status.PASS
    assert compared == [True]


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


def lose_sum(parts: list[Batch], replica: int) -> Batch:
    return parts[replica]


@pytest.mark.first(6)
@pytest.mark.parametrize(
    ("simulator", "code", "phase"),
    [
        (Simulator(mean_by_statistics), "loss-not-scaled", "loss"),
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


@pytest.mark.parametrize(
    ("simulator", "count"),
    [
        (Simulator(by_statistics, reduce=lose_sum), 1),
        # The shards, their sum, and the whole batch for what that says of it.
        (Simulator(by_statistics, lambda *_: 1.3), 3),
    ],
    ids=["behind-the-parts", "in-the-parts"],
)
def test_a_reading_that_could_add_nothing_is_not_explained(
    simulator: Simulator, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no shard has wrong, no sum of shards has; what is named, stays named."""
    asked = []

    def explain(evidence: Evidence, chain: Chain) -> tuple[Finding, ...]:
        asked.append(evidence)
        return explain_chain(evidence, chain)

    monkeypatch.setattr("distbench.diagnose.weighed.explain_chain", explain)
    assert judge(simulator.make_evidence()).status is Status.FAIL
    assert len(asked) == count


def test_examples_that_no_replica_gets_are_told() -> None:
    evidence = Simulator(sum_squares).make_evidence()
    notes = {**evidence.reference.notes, "left_out": [2, 0, 1]}
    reference = replace(evidence.reference, notes=notes)
    judgement = judge(replace(evidence, reference=reference))
    assert "3 of 42 examples are left out" in judgement.message


def test_what_is_wrong_with_a_last_batch_alone_is_told() -> None:
    """Each shard counts as it does in all other batches."""
    simulator = Simulator(mean_squares, by_first_share, last=LAST)
    judgement = judge(simulator.make_evidence())
    assert judgement.status is Status.FAIL
    first = judgement.findings[0]
    assert (first.code, first.phase, first.step) == ("scale-error", "loss", 2)
    assert "step 2 has 3 + 1 + 1 examples, in place of 6 + 4 + 3" in judgement.message


def test_a_twin_in_another_order_is_none_where_the_order_matters() -> None:
    evidence = Simulator(by_statistics, order_matters=True).make_evidence()
    key = TraceKey(step=0, phase="local_gradient", variable="kernel")
    kept = measure_noise(evidence).find_margin(key, np.ones(WIDTH))
    mixed = tuple(replace(twin, notes={}) for twin in evidence.twins)
    all_of_them = measure_noise(replace(evidence, twins=mixed))
    assert (
        np.max(kept.bound)
        < 1e-3
        < np.max(all_of_them.find_margin(key, np.ones(WIDTH)).bound)
    )


def put_distinct(evidence: Evidence, factor: float) -> Evidence:
    """Say what the update gives with repeated rows added up: a slot times a factor."""
    values = {
        replace(key, replica=0): value
        if key.phase != "slot"
        else np.asarray(value * np.float32(factor))
        for key, value in evidence.reference.select(step=0, replica=WHOLE)
        if key.phase in ("slot", "variable")
    }
    assert values
    distinct = replace(evidence.reference, values=values)
    return replace(evidence, probes={**evidence.probes, "distinct": distinct})


@pytest.mark.parametrize(("factor", "noted"), [(1.0, False), (1.5, True)])
def test_a_rule_that_minds_repeated_rows_passes_with_a_note(
    factor: float, noted: bool
) -> None:
    evidence = observe(rule=Rule(name="momentum"))
    judgement = judge(put_distinct(evidence, factor))
    assert judgement.status is Status.PASS
    assert ("repeated rows" in judgement.message) == noted


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
    evidence = replace(
        evidence,
        observed=replace(evidence.observed, values=told),
        loss_reduction="mean",
    )
    assert judge(evidence).status is Status.PASS
    doubled = {k: 2 * v if k.phase == "loss" else v for k, v in told.items()}
    observed = replace(evidence.observed, values=doubled)
    judgement = judge(replace(evidence, observed=observed))
    assert judgement.findings[0].code == "loss-misreported"
