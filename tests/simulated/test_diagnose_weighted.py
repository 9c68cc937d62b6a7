"""Means over weights of the shard's own, and what looks like them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_values import scale as multiply
from grouped_losses import SHARDS, Batch, sum_of_unit_errors
from grouped_training import Simulator
from planted_case import check_passed
from training_simulator import TRAINED, Fault, Setup, Simulation, observe

from distbench.diagnose.judge import judge
from distbench.split import shard_slices
from distbench.trace import COMPUTED


def divide_by_own_weights(power):
    """Σ w ℓ / Σ w over the shard alone, divided by a power of N."""

    def scale(r, setup):
        run = Simulation(setup)
        own = run.weights[shard_slices(run.shards)[r]].sum()
        return run.examples / own / setup.replicas**power

    return Fault(scale=scale)


@pytest.mark.first(3)
@pytest.mark.parametrize("shards", [(8, 8), (4, 4, 4, 4), (9, 3, 4)], ids=str)
@pytest.mark.parametrize(
    ("code", "power"),
    [("loss-not-scaled", 0), ("mean-of-means", 1), ("loss-scaled-twice", 2)],
)
def test_a_mean_over_own_weights_is_told_on_even_shards_too(shards, code, power):
    setup = {"shards": shards, "replicas": len(shards), "weighed": True}
    fault = divide_by_own_weights(power)
    (finding,) = judge(observe(fault, shards_known=False, steps=1, **setup)).findings
    assert (finding.code, finding.phase) == (code, "loss")
    assert finding.variables == ("", *TRAINED)
    assert finding.confidence > 0.999


def test_a_mean_over_own_weights_that_counts_as_its_examples_is_told():
    def scale(r, setup):
        run = Simulation(setup)
        own = run.weights[shard_slices(run.shards)[r]].sum()
        return run.shards[r] / own

    setup = {"shards": (9, 3, 4), "replicas": 3, "weighed": True}
    evidence = observe(Fault(scale=scale), shards_known=False, steps=1, **setup)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("mean-of-means", "loss")
    assert finding.confidence > 0.999


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_mean_over_the_weights_of_all_examples_passes(replicas):
    check_passed(judge(observe(replicas=replicas, weighed=True, shards_known=False)))


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("loss-not-scaled", Fault(scale=lambda r, setup: setup.replicas)),
        ("loss-scaled-twice", Fault(scale=lambda r, setup: 1 / setup.replicas)),
        ("scale-error", Fault(scale=lambda r, setup: 0.7)),
    ],
)
def test_a_constant_factor_on_a_weighted_loss_is_no_mean_of_means(code, fault):
    evidence = observe(fault, weighed=True, shards=(8, 8), shards_known=False, steps=1)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == (code, "loss")


def test_a_weight_of_one_replica_that_is_no_mean_is_none():
    fault = Fault(scale=lambda r, setup: 1.0 if r == 0 else 1.25)
    evidence = observe(fault, weighed=True, shards=(8, 8), shards_known=False, steps=1)
    assert all(f.code != "mean-of-means" for f in judge(evidence).findings)


@pytest.mark.parametrize("has_loss", [True, False], ids=["loss", "gradients-alone"])
@pytest.mark.parametrize(
    ("code", "power"), [("loss-not-scaled", 0), ("mean-of-means", 1)]
)
def test_weights_that_are_kept_above_a_number_are_told_by_the_loss(
    code, power, has_loss
):
    """A shard with hardly a weight is divided by more, so the shares exceed 1.

    Gradients that each shard divides by their norm have such shares too, but no loss.
    """
    setup = {"shards": (7, 6, 3), "replicas": 3, "weighed": True}
    run = Simulation(Setup(**setup))
    own = [run.weights[part].sum() for part in shard_slices(run.shards)]
    kept = [max(weight, 1.5 * min(own)) for weight in own]
    fault = Fault(
        scale=lambda r, setup: run.examples / kept[r] / setup.replicas**power,
        loss=lambda loss, r: loss if has_loss else loss * kept[r] / own[r],
    )
    evidence = observe(fault, shards_known=False, steps=1, **setup)
    phases = COMPUTED if has_loss else ("local_gradient",)
    alone = {
        key: multiply(value, own[key.replica] / kept[key.replica])
        if key.replica >= 0 and key.phase in phases
        else value
        for key, value in evidence.reference.values.items()
    }
    reference = replace(evidence.reference, values=alone)
    first = judge(replace(evidence, reference=reference)).findings[0]
    told = (first.code, first.phase, first.variables) == (code, "loss", ("", *TRAINED))
    assert told == has_loss
    assert ("on one device they count" in first.explanation) == has_loss


def take_root(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The root of the mean square error."""
    x, y = batch[:, :-1], batch[:, -1]
    rest = x @ theta - y
    root = float(np.sqrt(np.mean(rest**2)))
    return root, x.T @ rest / np.float32(len(rest) * root)


def test_a_mean_of_roots_is_no_mean_over_weights():
    first = judge(
        Simulator(take_root, lambda *_: 1 / len(SHARDS)).make_evidence()
    ).findings[0]
    assert (first.code, first.phase) == ("mean-of-means", "loss")
    assert "the root of a mean over its own shard" in first.explanation
    assert first.confidence > 0.999


def test_what_flows_back_clipped_on_each_replica_is_told():
    first = judge(Simulator(sum_of_unit_errors).make_evidence()).findings[0]
    assert (first.code, first.phase) == ("clip-before-reduction", "local_gradient")
    assert "the squares of these add up to 1" in first.explanation


def test_shards_that_count_otherwise_are_no_clip():
    """Their squares add up to something else."""

    def divide(batch, theta):
        loss, gradient = sum_of_unit_errors(batch, theta)
        return loss, gradient * np.float32(len(batch) ** 0.25)

    first = judge(Simulator(divide).make_evidence()).findings[0]
    assert (first.code, first.phase) == ("scale-error", "local_gradient")
