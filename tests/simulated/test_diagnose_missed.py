"""Shards that lose examples which count on one device, by their places in a batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from grouped_losses import SHARDS, Batch, Compute, mean_squares, sum_squares
from grouped_training import Simulator

from distbench.compare.nature.grouping import find_nature
from distbench.compare.state.measured_noise import measure_noise
from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.examples import Counted
from distbench.split import shard_slices
from distbench.verdict import Finding, Status


def lose_last(compute: Compute) -> Compute:
    """Without the last example of a batch."""
    return lambda batch, theta: compute(batch[:-1], theta)


def take_first(compute: Compute) -> Compute:
    """The first four examples of a batch alone."""
    return lambda batch, theta: compute(batch[:4], theta)


def lose_rest(compute: Compute) -> Compute:
    """Without what pieces of n // 3 examples leave over."""
    return lambda batch, theta: compute(batch[: len(batch) // 3 * 3], theta)


def weigh_by_size(replica: int, shards: tuple[int, ...]) -> float:
    return shards[replica] / sum(shards)


def observe(compute: Compute, batch_of: Compute, **setup: object) -> Evidence:
    """A run, with the numbers of the examples that count.

    Args:
        compute: What one device computes.
        batch_of: The same of a loss whose gradient is the batch that it is given.
        setup: Of the simulator.
    """
    evidence = Simulator(compute, **setup).make_evidence()  # type: ignore[arg-type]  # of a dict
    numbers = np.arange(sum(SHARDS))
    parts = [numbers[part] for part in shard_slices(SHARDS)]
    counted = Counted(
        step=0,
        whole=tuple(map(int, batch_of(numbers, numbers)[1])),
        shards=tuple(tuple(map(int, batch_of(part, part)[1])) for part in parts),
    )
    return replace(evidence, counted=counted)


def hand_back(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    del theta
    return 0.0, batch


def find_first(evidence: Evidence) -> Finding:
    judgement = judge(evidence)
    assert judgement.status is Status.FAIL
    return judgement.findings[0]


@pytest.mark.parametrize(
    ("lose", "words"),
    [
        (lose_last, "one device takes 5, 9 and no replica does"),
        (take_first, "replicas take 6-12 and one device does not"),
        (lose_rest, "one device takes 9 and no replica does, and replicas take 12"),
    ],
)
def test_examples_that_a_place_loses_are_told_by_their_numbers(lose, words) -> None:
    finding = find_first(observe(lose(sum_squares), lose(hand_back)))
    assert (finding.code, finding.phase, finding.step) == ("examples-missed", "loss", 0)
    assert words in finding.explanation
    assert finding.confidence > 0.99


def test_a_mean_that_weighs_as_its_examples_loses_some_too() -> None:
    compute, counted = lose_last(mean_squares), lose_last(hand_back)
    finding = find_first(observe(compute, counted, weigh=weigh_by_size))
    assert finding.code == "examples-missed"


def test_shards_alone_are_no_measure_where_they_lose_examples() -> None:
    evidence = observe(lose_last(sum_squares), lose_last(hand_back))
    assert not find_nature(evidence, measure_noise(evidence)).grouped


def test_a_sum_that_counts_all_examples_passes() -> None:
    evidence = observe(sum_squares, hand_back)
    assert evidence.counted is not None
    assert not evidence.counted.missed
    assert not evidence.counted.added
    assert judge(evidence).status is Status.PASS


def test_what_else_is_wrong_with_the_replicas_is_not_called_a_lost_example() -> None:
    evidence = observe(
        lose_last(sum_squares), lose_last(hand_back), weigh=lambda r, _: 1.0 + r
    )
    assert find_first(evidence).code != "examples-missed"


@pytest.mark.parametrize("lose", [lose_last, take_first])
def test_numbers_that_rounding_leaves_are_said_to_be_zero(lose) -> None:
    evidence = replace(observe(lose(sum_squares), lose(hand_back)), counted=None)
    for finding in judge(evidence).findings:
        assert "e-1" not in finding.explanation


def take_halves(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The first half of a batch counts by its squared errors, the second against."""
    half = len(batch) // 2
    first, second = (sum_squares(b, theta) for b in (batch[:half], batch[half:]))
    return first[0] - second[0], first[1] - second[1]


@pytest.mark.parametrize("weigh", [lambda *_: 1.0, lambda *_: 1 / 3, weigh_by_size])
def test_examples_that_are_taken_for_others_by_their_places_are_told(weigh) -> None:
    """All of them count, and a shard repeated there and back seems to have terms."""
    evidence = observe(take_halves, hand_back, weigh=weigh)
    assert evidence.counted is not None
    counted = replace(evidence.counted, variable="kernel", by_place=True)
    finding = find_first(replace(evidence, counted=counted))
    assert (finding.code, finding.phase) == ("unexplained", "loss")
    assert "to the gradient of 'kernel' depends on its place" in finding.explanation
    assert "Let no example depend on its place in the shard" in finding.explanation


def test_places_are_not_told_where_more_than_these_is_wrong() -> None:
    evidence = observe(take_halves, hand_back, weigh=lambda r, _: 1.0 + r)
    assert evidence.counted is not None
    counted = replace(evidence.counted, variable="kernel", by_place=True)
    finding = find_first(replace(evidence, counted=counted))
    assert "depends on its place" not in finding.explanation


def test_examples_that_one_gradient_alone_loses_are_told_with_its_name() -> None:
    evidence = observe(lose_last(sum_squares), lose_last(hand_back))
    assert evidence.counted is not None
    counted = replace(evidence.counted, variable="kernel", by_place=True)
    finding = find_first(replace(evidence, counted=counted))
    assert finding.code == "examples-missed"
    assert "which examples have a gradient of 'kernel'" in finding.explanation


def test_places_among_what_is_gathered_are_told_with_what_to_add_to_them() -> None:
    evidence = observe(take_halves, hand_back)
    assert evidence.counted is not None
    counted = replace(evidence.counted, by_place=True, given=True)
    probes = {**evidence.probes, "exchanged": evidence.reference}
    finding = find_first(replace(evidence, counted=counted, probes=probes))
    assert (finding.code, finding.phase) == ("unexplained", "loss")
    assert "on what is gathered of all replicas and on its place" in finding.explanation
    assert "if the program needs even ones" not in finding.explanation
