"""Replicas that draw random numbers by seeds which hold their own number."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from grouped_losses import SHARDS, WIDTH, Batch, sum_squares
from grouped_training import Simulator

from distbench.diagnose.judge import judge
from distbench.diagnose.seeds import find_own_draws
from distbench.evidence import Evidence
from distbench.fed import Fed
from distbench.verdict import Status

PLACE = "model.py:7"
N = len(SHARDS)


def mask(replica: int) -> Batch:
    """One for all examples, drawn by a replica's number; one device has that of 0."""
    return (np.random.default_rng(replica).random(WIDTH) > 0.4).astype(np.float32)


def run_masked(batch: Batch, theta: Batch, replica: int = 0) -> tuple[float, Batch]:
    kept = mask(replica)
    loss, gradient = sum_squares(batch, theta * kept)
    return loss, gradient * kept


def make_run(seeds: list[str], factor: float = 1.0) -> Evidence:
    numbers = itertools.cycle(range(N))
    evidence = Simulator(
        run_masked,
        lambda *_: factor,
        on_cluster=lambda batch, theta: run_masked(batch, theta, next(numbers)),
    ).make_evidence()

    def note(name: str, found: list[str]) -> Evidence:
        trace = getattr(evidence, name)
        notes = {**trace.notes, "seeds": {PLACE: found}}
        return replace(evidence, **{name: replace(trace, notes=notes)})

    evidence = note("reference", ["0 7"])
    return note("observed", seeds)


OWN = [f"{replica} 7" for replica in range(N)]


def test_each_replica_may_draw_by_its_own_number() -> None:
    judgement = judge(make_run(OWN))
    assert judgement.status is Status.PASS
    assert f"by its own number, at {PLACE}" in judgement.message


def test_other_numbers_than_one_device_has_need_other_seeds() -> None:
    assert judge(make_run(["0 7"])).status is Status.FAIL


def test_the_first_replica_still_tells_a_wrong_loss() -> None:
    first = judge(make_run(OWN, factor=N)).findings[0]
    assert (first.code, first.replicas) == ("loss-not-scaled", (0,))


@pytest.mark.parametrize(("seeds", "place"), [(OWN, PLACE), (["0 7"], "")])
def test_what_one_device_has_as_well_is_no_seed_of_their_own(
    seeds: list[str], place: str
) -> None:
    assert find_own_draws(make_run(seeds)) == place


def test_a_free_run_says_nothing_of_numbers_that_one_device_has_not() -> None:
    """Nor of the first replica, whose later steps start from something else."""
    free = replace(make_run(OWN), tier="free")
    judgement = judge(free)
    assert judgement.status is Status.PASS
    assert "cannot be judged" in judgement.message
    lacking = judge(replace(free, fed=Fed()))
    assert lacking.status is Status.VACUOUS
    assert f"by its own number, at {PLACE}" in lacking.message
