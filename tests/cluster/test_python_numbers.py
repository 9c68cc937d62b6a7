"""Numbers that an optimizer keeps in Python are found, and moved otherwise."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import distbench
from distbench.worker.state.python_numbers import (
    find_move,
    move_further,
    read_numbers,
    write_number,
)

pytestmark = pytest.mark.cluster


class Counting:
    def __init__(self):
        self.count, self.is_on, self.name = 3, True, "one"

    def go_on(self):
        self.count += 2


def test_numbers_are_attributes_by_the_optimizers_place() -> None:
    optimizers = [SimpleNamespace(rate=0.5), Counting()]
    assert read_numbers(optimizers) == {"0.rate": 0.5, "1.count": 3}
    write_number(optimizers, "1.count", 7)
    assert optimizers[1].count == 7


def test_what_is_assigned_to_one_is_changed_inside_alone() -> None:
    one, other = Counting(), Counting()
    with move_further([one, other], "0.count", lambda was, meant: was + 10):
        one.go_on()
        other.go_on()
        assert isinstance(one, Counting)
    one.go_on()
    assert (type(one), one.count, other.count) == (Counting, 15, 5)


@pytest.mark.parametrize(
    ("moves", "from_1"),
    [
        ([(3, 4)], 4),
        ([(3, 5), (5, 7)], 7),
        ([(8.0, 2.0), (2.0, 0.5)], 1 / 64),
        ([(1, 2), (2, 5)], None),
        ([(1, 1), (1, 1)], None),
        ([], None),
    ],
)
def test_a_number_is_moved_by_a_summand_or_a_factor(moves, from_1) -> None:
    move = find_move(moves)
    assert from_1 == (None if move is None else move(1, 3))
    if move is not None:
        assert move(move(1, 3), -3) == 1


def test_a_number_that_tracing_moves_is_named() -> None:
    """What puts it back between the traces is no move of the update's."""
    verdict = distbench.check(
        "tf_keras.optimizers:Nadam",
        "mirrored:2",
        workload="linear",
        tier="bounded",
        keras="legacy",
    )
    first = verdict.findings[0]
    assert (first.code, first.phase) == ("hyperparameter-differs", "slot")
    assert "'_u_product_counter' stands as replicas leave it" in first.explanation
