"""Replicas that pack their gradients in other orders into what is added up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from gradient_values import to_array
from training_simulator import TRAINED, Fault, observe

from distbench.diagnose.judge import judge
from distbench.trace import Value
from distbench.verdict import Finding

Arrays = Sequence[np.ndarray]
Order = Callable[[Arrays], Arrays]


def add_up_packed(orders: Sequence[Order]) -> Fault:
    """A cluster that adds up one buffer of each replica, and cuts the sum.

    Args:
        orders: What each replica puts into its buffer, made of its gradients.
    """

    def reduce(ls, step) -> list[dict[str, Value]]:
        del step
        packed = [
            [value.ravel() for value in order([to_array(one[p]) for p in TRAINED])]
            for one, order in zip(ls, orders, strict=True)
        ]
        flat = sum(np.concatenate(parts) for parts in packed)
        cut: dict[str, Value] = {}
        for path in TRAINED:
            shape = to_array(ls[0][path]).shape
            size = int(np.prod(shape))
            cut[path], flat = flat[:size].reshape(shape), flat[size:]
        return [cut for _ in ls]

    return Fault(reduce=reduce)


def find_first(orders: Sequence[Order]) -> Finding:
    faulty = add_up_packed(orders)
    evidence = observe(faulty, replicas=len(orders), sparse=False, steps=2)
    return judge(evidence).findings[0]


def keep(arrays: Arrays) -> Arrays:
    return arrays


def turn_round(arrays: Arrays) -> Arrays:
    return arrays[::-1]


def turn_all_elements(arrays: Arrays) -> Arrays:
    return [np.concatenate([array.ravel() for array in arrays])[::-1]]


def turn_buckets(arrays: Arrays) -> Arrays:
    """The first variable is a bucket, and the others are one."""
    first, *others = arrays
    return [first.ravel()[::-1], *turn_all_elements(others)]


def double_backwards(arrays: Arrays) -> Arrays:
    return [2 * array for array in arrays[::-1]]


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (turn_round, "packed gradients from last to first into"),
        (turn_all_elements, "in the order of the variables, the last element first,"),
        (turn_buckets, "packed gradients in another order, the last element first,"),
    ],
)
@pytest.mark.parametrize("replicas", [2, 3])
def test_one_replica_with_another_order_is_named(order, words, replicas) -> None:
    finding = find_first([*[keep] * (replicas - 1), order])
    assert (finding.code, finding.phase, finding.step) == (
        "wrong-pairing",
        "reduced_gradient",
        0,
    )
    assert finding.replicas == (replicas - 1,)
    assert set(finding.variables) == set(TRAINED)
    assert words in finding.explanation


def test_all_but_the_first_replica_are_named() -> None:
    finding = find_first([keep, turn_round, turn_round])
    assert (finding.code, finding.replicas) == ("wrong-pairing", (1, 2))


def test_a_sum_of_more_than_moved_elements_is_something_else() -> None:
    assert find_first([keep, double_backwards]).code != "wrong-pairing"
