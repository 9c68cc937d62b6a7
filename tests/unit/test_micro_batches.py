"""Values of micro-batches, which only all of them together have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from inside_runs import ROWS, Program, add_up

from distbench.compare.inside.intermediates import find_astray, losses_add_up
from distbench.compare.inside.micro_batches import relate_all
from distbench.evidence import Inside

LOST = 1e-5


def cut(values: Any, number: int) -> Any:
    """A half of the examples."""
    middle = len(values) // 2
    return values[middle:] if number else values[:middle]


def take_halves(divide: Callable[[Program, str], str]) -> Inside:
    """A loss of each half of a shard: a sum over what a program divides it by."""
    program = Program()
    program.give()
    for number in (0, 1):

        def take(values: Any, number: int = number) -> Any:
            return cut(values, number)

        part = program.compute(f"{number}|part", "StridedSlice", ["rows"], take)
        square = program.compute(f"{number}|square", "Square", [part], np.square)
        total = program.compute(f"{number}|total", "Sum", [square], np.sum)
        below = divide(program, part)
        program.compute(f"{number}|loss", "RealDiv", [total, below], lambda v, n: v / n)
    return program.end("0|loss", "1|loss")


def count_own(program: Program, part: str) -> str:
    number = part[0]
    return program.compute(f"{number}|size", "Sum", [part], lambda v: np.sum(abs(v)))


def count_step(program: Program, part: str) -> str:
    """The count of a micro-batch of all replicas, of which one device has others."""
    size = count_own(program, part)
    joined = program.exchange(f"{part[0]}|joined", size, add_up)
    program.whole[joined], program.alone[joined] = (
        program.whole[size],
        program.alone[size],
    )
    return joined


def count_all(program: Program, part: str) -> str:
    number = part[0]
    return program.compute(
        f"{number}|all", "Identity", ["rows"], lambda _: np.sum(abs(ROWS))
    )


def test_sums_over_one_count_of_all_are_right_in_all_micro_batches_together() -> None:
    inside = take_halves(count_all)
    assert find_astray(inside, 0) == ()
    assert losses_add_up(inside, 0)


@pytest.mark.parametrize("count", [count_own, count_step])
def test_what_divides_each_by_its_own_count_is_named_and_not_the_cut(
    count: Callable[[Program, str], str],
) -> None:
    found = find_astray(take_halves(count), 0)
    assert [one.made.name for one in found] == ["0|loss", "1|loss"]
    assert all(one.of_cut and one.is_statistic for one in found)
    assert not any(one.of_share for one in found)


def test_a_statistic_of_a_micro_batch_is_no_mean_of_what_is_lost() -> None:
    program = Program()
    program.give()
    for number in (0, 1):

        def take(values: Any, number: int = number) -> Any:
            return cut(values, number)

        part = program.compute(f"{number}|part", "StridedSlice", ["rows"], take)
        middle = program.compute(f"{number}|middle", "Mean", [part], np.mean)
        less = program.compute(f"{number}|less", "Hypot", [part, middle], np.hypot)
        program.compute(f"{number}|loss", "Sum", [less], np.sum)
    found = find_astray(program.end("0|loss", "1|loss"), 0)
    assert [one.made.name for one in found] == ["0|middle", "1|middle"]
    assert not any(one.of_cut for one in found)


def test_a_cut_that_drops_examples_is_named_itself() -> None:
    program = Program()
    program.give()
    for number in (0, 1):

        def take(values: Any, number: int = number) -> Any:
            return cut(values, number)

        def drop(values: Any, number: int = number) -> Any:
            return cut(values, number)[:1]

        name = f"{number}|part"
        part = program.compute(name, "StridedSlice", ["rows"], take, replica=drop)
        program.compute(f"{number}|loss", "Sum", [part], np.sum)
    found = find_astray(program.end("0|loss", "1|loss"), 0)
    assert {one.made.name for one in found} == {"0|part", "1|part"}


def test_parts_are_related_whatever_the_cut() -> None:
    whole = [ROWS[:4], ROWS[4:]]
    spread = [[ROWS[::3], ROWS[1::3]], [ROWS[2::3]]]
    assert relate_all(whole, spread, LOST) == "rows"
    assert (
        relate_all([v.T for v in whole], [[v.T for v in p] for p in spread], LOST)
        == "rows"
    )
    other = [[ROWS[::3], ROWS[1::3]], [ROWS[1::3][:2]]]
    assert relate_all(whole, other, LOST) == "none"
    # The same numbers in other rows.
    mixed = np.stack([ROWS[:, 0], np.roll(ROWS[:, 1], 1)], axis=1)
    assert relate_all(whole, [[mixed[:5]], [mixed[5:]]], LOST) == "none"


@pytest.mark.parametrize(
    ("shape", "scale", "offset"), [((16384, 128), 1.0, 0.0), ((512, 16), 1e-3, 1.0)]
)
def test_rows_are_the_same_that_rounding_puts_into_another_order(
    shape: tuple[int, int], scale: float, offset: float
) -> None:
    rng = np.random.default_rng(0)
    rows = (offset + scale * rng.normal(size=shape)).astype(np.float32)
    rounded = (rows * (1 + 6e-8 * rng.normal(size=shape))).astype(np.float32)
    order = rng.permutation(len(rows))
    first, second = np.split(rounded[order], 2)
    whole = np.split(rows, 2)
    assert relate_all(whole, [np.split(first, 2), [second]], LOST) == "rows"
    # Columns of other rows beside each other, and one row with another number.
    moved = np.concatenate((rounded[:, :1], np.roll(rounded[:, 1:], 1, axis=0)), axis=1)
    assert relate_all(whole, [[moved[:100]], [moved[100:]]], LOST) == "none"
    moved = rounded.copy()
    moved[7, 3] += 0.1 * scale
    assert relate_all(whole, [[moved[:100]], [moved[100:]]], LOST) == "none"


def test_totals_are_related_by_all_micro_batches() -> None:
    one, two, three = map(np.float32, (1.0, 2.0, 4.0))
    assert (
        relate_all([one, two], [[np.float32(0.5), one], [np.float32(1.5)]], LOST)
        == "sum"
    )
    assert relate_all([one, two], [[two, one], [two, one]], LOST) == "same"
    assert relate_all([one, two], [[one], [three]], LOST) == "none"
    assert relate_all([one, np.float32(np.inf)], [[one], [two]], LOST) == "none"
    assert relate_all([one, two], [[one, two], []], LOST) == "none"
    assert relate_all([one, two], [[ROWS], [ROWS]], LOST) == "none"
