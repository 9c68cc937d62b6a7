"""Gradients that replicas make of those of several losses, and what a look tells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from grouped_losses import (
    EXAMPLES,
    Batch,
    by_statistics,
    sum_of_projected,
    sum_off_memory,
    sum_squares,
    with_constant_pull,
)
from grouped_training import Simulator
from inside_runs import Program, look

from distbench.compare.inside.intermediates import losses_add_up
from distbench.compare.nature.doubled import adds_up_beside_common, take_gradients
from distbench.diagnose.judge import judge
from distbench.trace import WHOLE
from distbench.verdict import Status


def of_own_count(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    loss, gradient = sum_squares(batch, theta)
    return loss, gradient * np.float32(EXAMPLES / len(batch))


def test_losses_that_add_up_and_gradients_that_do_not_are_worth_a_look() -> None:
    judgement = judge(Simulator(sum_of_projected).make_evidence())
    assert (judgement.status, judgement.doubtful) == (Status.PASS, 0)
    for compute in (by_statistics, sum_squares):
        assert judge(Simulator(compute).make_evidence()).doubtful is None


def test_where_gradients_round_more_than_losses_nothing_is_to_be_looked_at() -> None:
    evidence = Simulator(sum_of_projected).make_evidence()
    notes = {**evidence.reference.notes, "narrowest": "bfloat16"}
    narrow = replace(evidence, reference=replace(evidence.reference, notes=notes))
    assert judge(narrow).doubtful is None


def test_where_all_losses_add_up_the_gradients_are_changed_before_the_sum() -> None:
    evidence = Simulator(sum_of_projected).make_evidence()
    judgement = judge(replace(evidence, inside=look(of_all=True)))
    [finding] = judgement.findings
    assert (finding.code, finding.phase) == (
        "nonlinear-before-reduction",
        "reduced_gradient",
    )
    assert (finding.step, finding.replicas) == (0, (0, 1, 2))
    assert judgement.doubtful is None


def test_so_they_are_beside_a_loss_that_all_have_alike() -> None:
    evidence = Simulator(sum_off_memory).make_evidence()
    judgement = judge(evidence)
    assert judgement.status is Status.PASS
    assert judgement.doubtful is not None
    inside = look(of_all=True, has_common=True)
    [finding] = judge(replace(evidence, inside=inside)).findings
    assert finding.code == "nonlinear-before-reduction"
    assert "or are alike on all replicas" in finding.explanation


def test_what_all_have_alike_is_no_more_than_added_up() -> None:
    """A penalty in full, with a tape of its own: linear."""
    evidence = Simulator(with_constant_pull).make_evidence()
    inside = look(of_all=True, has_common=True)
    [finding] = judge(replace(evidence, inside=inside)).findings
    assert finding.code == "regularizer-not-scaled"


def test_a_gradient_that_some_shard_lacks_tells_nothing_of_what_is_common() -> None:
    evidence = Simulator(with_constant_pull).make_evidence()
    reference = evidence.reference
    whole = take_gradients(reference, WHOLE)
    shards = [take_gradients(reference, r) for r in range(reference.replicas)]
    assert adds_up_beside_common(evidence, whole, shards, 0)
    more = {**whole, ("bias", 0): np.ones(2)}
    assert adds_up_beside_common(evidence, more, shards, 0) is None


def test_gradients_that_weigh_otherwise_are_not_combined() -> None:
    """A sum as a loss, and gradients that are divided by the own count: linear."""
    evidence = Simulator(of_own_count).make_evidence()
    before = judge(evidence)
    after = judge(replace(evidence, inside=look(of_all=True)))
    assert before.doubtful == 0
    assert [(f.code, f.phase) for f in after.findings] == [
        (f.code, f.phase) for f in before.findings
    ]


def test_where_a_loss_is_of_the_own_examples_they_may_be_meant() -> None:
    evidence = Simulator(sum_of_projected).make_evidence()
    judgement = judge(replace(evidence, inside=look(of_all=False)))
    assert (judgement.status, judgement.doubtful) == (Status.PASS, None)
    assert "its own shard on one device" in judgement.message or (
        "their shards on one device" in judgement.message
    )


@pytest.mark.parametrize("of_all", [True, False])
def test_losses_add_up_if_replicas_have_their_parts_of_them(of_all: bool) -> None:
    assert losses_add_up(look(of_all=of_all), 0) is of_all


def test_without_any_loss_nothing_is_told() -> None:
    program = Program()
    program.give()
    assert not losses_add_up(program.end(""), 0)
