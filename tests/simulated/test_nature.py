"""Whether the result of a program depends on how its examples are grouped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from grouped_losses import (
    WIDTH,
    Batch,
    Compute,
    against_the_others,
    by_statistics,
    by_statistics_with_penalty,
    mean_against_the_others,
    mean_by_statistics,
    mean_by_weight,
    mean_squares,
    of_all_together,
    of_halves,
    penalised_squares_in_half,
    squares_in_half,
    statistics_beside_mean,
    sum_beside_mean,
    sum_squares,
    with_penalty,
)
from grouped_training import KERNEL, Simulator

from distbench.compare.nature.grouping import find_nature
from distbench.compare.state.measured_noise import measure_noise
from distbench.diagnose.judge import judge
from distbench.trace import Trace, TraceKey
from distbench.trace.numbers import Array
from distbench.verdict import Status


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
        (mean_against_the_others, "mean"),
        (of_all_together, None),
        (of_halves, None),
    ],
)
def test_statistics_and_contrasts_do(compute: Compute, kind: str | None) -> None:
    assert find(Simulator(compute)) == (True, kind)


@pytest.mark.parametrize(
    ("compute", "grouped"), [(squares_in_half, False), (by_statistics, True)]
)
def test_the_rounding_of_a_narrow_dtype_is_no_mean_of_what_doubles(
    compute: Compute, grouped: bool
) -> None:
    """Any weights, or parts of two kinds, come near it: half of the digits are few."""
    evidence = Simulator(compute).make_evidence()
    notes = {**evidence.reference.notes, "narrowest": "bfloat16"}
    evidence = replace(evidence, reference=replace(evidence.reference, notes=notes))
    nature = find_nature(evidence, measure_noise(evidence))
    assert (nature.grouped, nature.kind) == (grouped, "sum")


def _overflow(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """A sum in float16, of which one element is beyond it whatever the examples."""
    loss, gradient = squares_in_half(batch, theta)
    gradient[0] = np.inf
    return loss, gradient


def test_what_overflows_hides_not_what_the_rest_is_made_of() -> None:
    evidence = Simulator(_overflow).make_evidence()
    notes = {**evidence.reference.notes, "narrowest": "float16"}
    evidence = replace(evidence, reference=replace(evidence.reference, notes=notes))
    with np.errstate(invalid="ignore"):
        nature = find_nature(evidence, measure_noise(evidence))
    assert (nature.grouped, nature.kind) == (False, "sum")


@pytest.mark.parametrize(("on_gpus", "is_found"), [(True, True), (False, False)])
def test_kernels_that_round_a_double_by_itself_hide_no_penalty(
    on_gpus: bool, is_found: bool
) -> None:
    evidence = Simulator(penalised_squares_in_half).make_evidence()
    notes = {**evidence.reference.notes, "narrowest": "float16"}
    evidence = replace(
        evidence,
        reference=replace(evidence.reference, notes=notes),
        subject=replace(evidence.subject, other_kernels=on_gpus),
    )
    nature = find_nature(evidence, measure_noise(evidence))
    assert bool(nature.pulls) is is_found
    if is_found:
        assert nature.pulls["kernel"][0] == pytest.approx(0.01, rel=0.1)


def limited(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """A sum whose gradient is limited to a norm that few batches exceed."""
    loss, gradient = sum_squares(batch, theta)
    size = float(np.linalg.norm(gradient))
    return loss, gradient * np.float32(min(1.0, 1e3 / size))


class LargerLater(Simulator):
    """The second batch is far larger than the others."""

    def draw(self, step: int) -> Batch:
        return super().draw(step) * np.float32(100 if step == 1 else 1)


def test_a_later_step_may_depend_on_groups_where_the_first_one_does_not() -> None:
    simulator = LargerLater(limited)
    assert find(simulator) == (True, "sum")
    assert judge(simulator.make_evidence()).status is Status.PASS
    assert not find(Simulator(limited))[0]


def test_a_later_step_that_is_a_sum_as_the_first_one_leaves_it_at_that() -> None:
    assert not find(LargerLater(sum_squares))[0]


class WeighedLater(Simulator):
    """All examples weigh the same in the first step alone."""

    def draw(self, step: int) -> Batch:
        batch = super().draw(step)
        return batch if step else np.abs(batch) * 0 + np.sign(batch)


def test_a_mean_by_weights_may_be_one_over_examples_in_the_first_step() -> None:
    """Then its shards make up the whole in each step, but by no number of examples."""
    assert find(WeighedLater(mean_by_weight)) == (False, None)


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


@pytest.mark.parametrize(
    ("moved_by", "is_queue"), [((0, 2, 4, 6), True), ((2,), False)]
)
def test_state_in_the_order_of_the_examples_is_no_rounding(
    moved_by: tuple[int, ...], is_queue: bool
) -> None:
    """Where every other order changes what is kept; else it is rounded now and then."""
    evidence = Simulator(sum_squares).make_evidence()
    key = TraceKey(step=0, phase="variable", variable="queue")
    kept = np.arange(1, 9, dtype=np.float32)

    def add(trace: Trace, value: Array) -> Trace:
        queue = replace(KERNEL, path="queue", shape=value.shape, trainable=False)
        values = {**trace.values, **{replace(key, step=s): value for s in range(3)}}
        return replace(trace, values=values, variables=(*trace.variables, queue))

    twins = [
        add(twin, kept[::-1] if number in moved_by else kept)
        for number, twin in enumerate(evidence.twins)
    ]
    evidence = replace(
        evidence, reference=add(evidence.reference, kept), twins=tuple(twins)
    )
    bound = np.max(measure_noise(evidence).find_margin(key, kept).bound)
    assert (bound < 1e-4) == is_queue
