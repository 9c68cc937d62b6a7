"""Gathered gradients that are added up along one axis or another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from gradient_values import Gradients, to_array
from planted_case import Case, check_named, check_passed, run_case
from training_simulator import KERNEL, TRAINED, Fault, observe

from distbench.diagnose.judge import judge

AddUp = Callable[[Sequence[np.ndarray]], np.ndarray]


def gather(parts: Sequence[np.ndarray], *, axis: int, by_row: bool) -> np.ndarray:
    """The sum over the axis at which the replicas are taken to be."""
    shape = parts[0].shape
    units = np.concatenate(parts, axis=0 if by_row else None)
    row = shape[1:] if by_row else ()
    places = (len(parts), -1) if axis == 0 else (-1, len(parts))
    return units.reshape(*places, *row).sum(axis).reshape(shape)


def sum_each(add_up: AddUp) -> Fault:
    def reduce(ls: Sequence[Gradients], step: int) -> list[Gradients]:
        total = {k: add_up([to_array(g[k]) for g in ls]) for k in TRAINED}
        return [total for _ in ls]

    return Fault(reduce=reduce)


def sum_buffer(add_up: AddUp) -> Fault:
    def reduce(ls: Sequence[Gradients], step: int) -> list[Gradients]:
        own = [[to_array(g[k]) for k in TRAINED] for g in ls]
        flat = add_up([np.concatenate(parts, axis=None) for parts in own])
        ends = np.cumsum([part.size for part in own[0]])[:-1]
        pieces = zip(TRAINED, own[0], np.split(flat, ends), strict=True)
        return [{k: piece.reshape(g.shape) for k, g, piece in pieces}] * len(ls)

    return Fault(reduce=reduce)


WAYS = {
    "elements": (sum_each, False, "N = 3 elements"),
    "rows": (sum_each, True, "N = 3 rows"),
    "buffer": (sum_buffer, False, "one replica's gradient of all variables"),
}


@pytest.mark.parametrize(("plant", "by_row", "words"), WAYS.values(), ids=WAYS)
def test_a_sum_of_neighbours_is_told(plant, by_row, words):
    case = Case(
        name="neighbours",
        code="wrong-pairing",
        phase="reduced_gradient",
        variable=KERNEL,
        fault=plant(partial(gather, axis=1, by_row=by_row)),
        setup={"replicas": 3, "sparse": False},
    )
    judgement = run_case(case)
    check_named(case, judgement)
    assert words in judgement.findings[0].explanation


@pytest.mark.parametrize(("plant", "by_row", "words"), WAYS.values(), ids=WAYS)
def test_a_sum_over_the_replicas_passes(plant, by_row, words):
    fault = plant(partial(gather, axis=0, by_row=by_row))
    check_passed(judge(observe(fault, replicas=3, sparse=False)))
