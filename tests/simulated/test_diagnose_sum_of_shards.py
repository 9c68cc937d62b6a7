"""What follows from the sum of the shards, where the whole batch is no measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from grouped_losses import (
    SHARDS,
    Batch,
    Compute,
    against_the_others,
    by_one_deviation,
    by_statistics,
    mean_by_weight,
    mean_by_weight_and_size,
    mean_squares,
    squares_in_half,
)
from grouped_training import Simulator, by_share, lose_last

from distbench.compare.comparison import compare_evidence
from distbench.compare.nature.grouping import find_nature
from distbench.compare.nature.shards import weigh_shards
from distbench.compare.state.measured_noise import measure_noise
from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import Trace
from distbench.verdict import Status


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


def test_a_mean_times_the_own_part_of_examples_is_no_statistic() -> None:
    """A mean over other weights is not meant so; a scale of the own examples may be."""
    judgement = judge(Simulator(mean_by_weight_and_size).make_evidence())
    assert judgement.status is Status.FAIL
    (finding,) = judgement.findings
    assert (finding.code, finding.phase) == ("mean-of-means", "loss")
    judgement = judge(Simulator(by_one_deviation).make_evidence())
    assert judgement.status is Status.PASS
    assert "compared with its own shard" in judgement.message


@pytest.mark.parametrize(
    ("times", "codes"),
    [(1, []), (len(SHARDS), []), (2, ["loss-misreported"])],
    ids=["added-up", "averaged", "neither"],
)
def test_of_losses_that_nobody_declared_a_sum_or_a_mean_is_right(
    times: int, codes: list[str]
) -> None:
    """Averaged losses are N times what adds up, beside the same gradients."""
    evidence = Simulator(by_statistics).make_evidence()
    values = {
        key: np.float32(value * times) if key.phase == "loss" else value
        for key, value in evidence.observed.values.items()
    }
    observed = replace(evidence.observed, values=values)
    judgement = judge(change_evidence(evidence, observed=observed, loss_reduction=None))
    assert [finding.code for finding in judgement.findings] == codes, judgement


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
            "nonfinite",
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
    assert {step for step, _ in weighed.measure.settled} == {1}
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
