"""Where replicas first go another way than one device, by their intermediate values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from inside_runs import EVEN, ROWS, SIZES, Program, add_up, share

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.inside.intermediates import (
    find_astray,
    limits_addends,
    starts_right,
)
from distbench.evidence import Inside
from distbench.trace.intermediates import (
    INTERMEDIATES,
    made_from_json,
    made_to_json,
)


def mean(values: Any) -> Any:
    return np.mean(values, axis=0)


def average(parts: Sequence[Any]) -> list[Any]:
    return [sum(parts) / len(parts)] * len(parts)


def build(*, own: bool, join: Any = None, sizes: tuple[int, ...] = SIZES) -> Program:
    """Distances from a mean, of all examples or of the own ones, and their mean."""
    program = Program(sizes=sizes)
    program.give()
    if own:
        middle = program.compute("middle", "Mean", ["rows"], mean)
        if join is not None:
            middle = program.exchange("joined", middle, join)
            program.whole[middle] = program.whole["middle"]
            program.alone[middle] = program.alone["middle"]
    else:
        total = program.compute("total", "Sum", ["rows"], lambda v: np.sum(v, axis=0))
        joined = program.exchange("joined", total, add_up)
        program.whole[joined] = program.whole[total]
        program.alone[joined] = program.alone[total]
        middle = program.compute(
            "middle", "RealDiv", [joined], lambda v: v / np.float32(len(ROWS))
        )
    program.compute("less", "Sub", ["rows", middle], lambda v, m: v - m)
    program.compute("rest", "Abs", ["less"], np.abs)
    program.compute("loss", "Sum", ["rest"], share)
    return program


def test_a_program_that_is_right_goes_astray_nowhere() -> None:
    inside = build(own=False).end("loss")
    assert find_astray(inside, 0) == ()
    assert starts_right(inside, 0)


@pytest.mark.parametrize("odd", [np.inf, np.nan, 1e9])
def test_what_only_replicas_have_that_is_not_finite_is_named(odd: float) -> None:
    def overflow(rows: Any) -> Any:
        made = np.exp(rows)
        made[0, 0] = odd
        return made

    program = Program()
    program.give()
    program.compute("made", "Exp", ["rows"], np.exp, replica=overflow)
    program.compute("loss", "Sum", ["made"], share)
    (found,) = find_astray(program.end("loss"), 0)
    assert found.made.name == "made"


def test_what_one_device_has_not_finite_either_is_right() -> None:
    """As elements that a mask leaves out."""

    def mask(rows: Any) -> Any:
        return np.where(rows > 0, rows, -np.inf)

    program = Program()
    program.give()
    program.compute("masked", "Select", ["rows"], mask)
    program.compute("made", "Exp", ["masked"], np.exp)
    program.compute("loss", "Sum", ["made"], share)
    assert find_astray(program.end("loss"), 0) == ()


@pytest.mark.parametrize("mask", [-1e9, 3e38])
def test_what_stands_beside_a_mask_is_compared_by_itself(mask: float) -> None:
    def put(rows: Any) -> Any:
        return np.where(rows > 0, rows, np.float32(mask))

    program = Program()
    program.give()
    program.compute("size", "Abs", ["rows"], np.abs, replica=lambda v: 1.01 * abs(v))
    program.compute("masked", "Select", ["size", "rows"], lambda s, v: put(s * (v > 0)))
    program.compute("made", "Tanh", ["masked"], np.tanh)
    program.compute("loss", "Sum", ["made"], share)
    (found,) = find_astray(program.end("loss"), 0)
    assert found.made.name == "size"


def test_what_large_numbers_have_rounded_is_right() -> None:
    """They are no mask: each is another one."""

    def cancel(rows: Any) -> Any:
        return np.where(rows > 0, rows, 1e8 * rows)

    def round_off(rows: Any) -> Any:
        return np.where(rows > 0, rows + np.float32(1), 1e8 * rows)

    program = Program()
    program.give()
    program.compute("made", "Sub", ["rows"], cancel, replica=round_off)
    program.compute("loss", "Sum", ["made"], share)
    assert find_astray(program.end("loss"), 0) == ()


def test_a_mean_of_the_own_examples_is_named_and_not_what_follows_from_it() -> None:
    inside = build(own=True).end("loss")
    (found,) = find_astray(inside, 0)
    assert found.made.place == "model.py:middle"
    assert (found.is_own, found.is_mean, found.is_statistic) == (True, True, True)
    assert not any((found.is_alike, found.joined, found.of_share))
    assert found.term is None
    assert not starts_right(inside, 0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("own", [False, True])
def test_dtypes_that_numpy_lacks_round_by_their_own_digits(
    dtype: str, own: bool
) -> None:
    """Replicas have another rate: by one rounding, or by the number of examples."""
    unit = find_roundoff(dtype)

    def divide(values: Any) -> Any:
        return np.array(1 / len(values) if own else 0.5 + unit, dtype)

    program = Program()
    program.give()
    program.compute("narrow", "Cast", ["rows"], lambda v: v.astype(dtype))
    rate = program.compute("rate", "RealDiv", ["narrow"], divide)
    if not own:
        program.whole[rate] = np.array(0.5, dtype)
    program.compute("times", "Mul", ["narrow", "rate"], lambda v, m: v * m)
    wide = program.compute("wide", "Cast", ["times"], lambda v: v.astype(np.float32))
    program.compute("loss", "Sum", [wide], np.sum)
    found = find_astray(program.end("loss"), 0)
    assert [one.made.place for one in found] == ["model.py:rate"] * own
    assert not any(one.is_mean for one in found)


def test_means_that_are_averaged_are_told() -> None:
    (found,) = find_astray(build(own=True, join=average).end("loss"), 0)
    assert found.made.place == "model.py:middle"
    assert found.joined == "mean"


def test_means_that_are_summed_are_right_and_their_sum_is_not() -> None:
    (found,) = find_astray(build(own=True, join=add_up, sizes=EVEN).end("loss"), 0)
    assert found.made.place == "model.py:joined"
    assert (found.is_alike, found.is_own, found.is_statistic) == (True, False, False)


def test_means_of_uneven_shards_are_not_put_right_by_a_division() -> None:
    (found,) = find_astray(build(own=True, join=add_up).end("loss"), 0)
    assert found.made.place == "model.py:middle"
    assert found.joined == "sum"


def test_what_is_put_right_later_is_not_named() -> None:
    """A largest score is subtracted and added again, on each replica its own."""
    program = Program()
    program.give()
    program.compute("most", "Max", ["rows"], lambda v: np.max(v, axis=0))
    program.compute("less", "Sub", ["rows", "most"], lambda v, m: v - m)
    program.compute("again", "AddV2", ["less", "most"], lambda v, m: v + m)
    program.compute("loss", "Sum", ["again"], share)
    assert find_astray(program.end("loss"), 0) == ()


def test_what_an_earlier_update_left_is_not_named() -> None:
    program = Program()
    program.give()
    program.read("weight", 1.0, 1.5)
    program.compute("made", "Mul", ["rows", "weight"], lambda v, w: v * w)
    program.compute("loss", "Sum", ["made"], share)
    assert find_astray(program.end("loss"), 0) == ()


def test_nor_is_what_is_made_of_that_where_one_device_reads_it_otherwise() -> None:
    program = Program()
    program.give()
    program.read("weight", 1.0, 1.5)
    program.compute("made", "GatherV2", ["weight", "rows"], lambda w, v: v * w)
    program.compute("loss", "Sum", ["made"], share)
    del program.whole["weight"], program.alone["weight"]
    assert find_astray(program.end("loss"), 0) == ()


@pytest.mark.parametrize(("divisor", "times"), [(1.0, 2.0), (2.0, 1.0)])
def test_a_term_tells_what_all_replicas_add_up_to(divisor: float, times: float) -> None:
    program = build(own=False)
    program.compute("mean", "Mean", ["rows"], lambda v: np.float32(5 + np.mean(v)))
    program.compute("term", "Mul", ["mean"], lambda v: v, replica=lambda v: v / divisor)
    program.compute("both", "AddV2", ["loss", "term"], lambda a, b: a + b)
    (found,) = find_astray(program.end("both"), 0)
    assert found.made.place == "model.py:mean"
    assert found.term == pytest.approx(times, rel=0.1)


def test_a_term_that_may_be_meant_is_left_out_beside_what_bends_the_loss() -> None:
    program = build(own=True)
    program.compute("term", "Mean", ["rows"], lambda v: np.float32(5 + np.mean(v)))
    program.compute("both", "AddV2", ["loss", "term"], lambda a, b: a + b)
    (found,) = find_astray(program.end("both"), 0)
    assert found.made.place == "model.py:middle"


def test_an_own_addend_that_is_taken_for_the_sum_is_told() -> None:
    program = Program()
    program.give()
    program.compute("total", "Sum", ["rows"], lambda v: np.sum(v**2))
    program.compute("shares", "RealDiv", ["rows", "total"], lambda v, t: v / t)
    program.compute("loss", "Sum", ["shares"], lambda v: np.sum(v**4))
    (found,) = find_astray(program.end("loss"), 0)
    assert found.made.place == "model.py:shares"
    assert (found.of_share, found.is_statistic) == (True, True)


@pytest.mark.parametrize("op", ["Mul", "RealDiv"])
def test_a_multiple_of_an_addend_is_not_taken_for_the_sum(op: str) -> None:
    program = Program()
    program.give()
    program.compute("total", "Sum", ["rows"], lambda v: np.sum(v**2))
    program.compute(
        "loss", op, ["total"], lambda v: v, replica=lambda v: v * np.float32(1.5)
    )
    (found,) = find_astray(program.end("loss"), 0)
    assert (found.of_share, found.is_statistic) == (False, False)


def test_a_number_over_an_addend_is_no_multiple_of_it() -> None:
    program = Program()
    program.give()
    program.compute("total", "Sum", ["rows"], lambda v: np.sum(v**2))
    program.compute("loss", "RealDiv", ["total"], lambda v: 1 / v)
    program.made[-1] = replace(program.made[-1], parents=("number", "total"))
    (found,) = find_astray(program.end("loss"), 0)
    assert (found.of_share, found.is_statistic) == (True, True)


def hold(addend: str, op: str, function: Any, *then: tuple[str, Any]) -> Inside:
    """A mean, or each replica's addend of one, against a number; then a loss of it."""
    program = Program(sizes=EVEN)
    program.give()
    by = np.mean if addend == "Mean" else share
    program.compute("rest", "Sum", ["rows"], lambda v: np.float32(np.sum(v)))
    program.compute("middle", addend, ["rows"], lambda v: np.float32(by(v**2)))
    name = program.compute("held", op, ["middle"], function)
    program.made[-1] = replace(program.made[-1], parents=("middle", "number"))
    for number, (made, further) in enumerate(then):
        name = program.compute(f"then-{number}", made, [name], further)
    program.compute("loss", "AddV2", ["rest", name], lambda a, b: a + b)
    return program.end("loss")


def half(value: Any) -> Any:
    return np.float32(value / 2)


@pytest.mark.parametrize(
    "inside",
    [
        hold("Sum", "Maximum", lambda v: np.maximum(v, 2), ("Mul", half)),
        hold("Sum", "Sub", lambda v: 9 - v, ("Relu", np.abs), ("Mul", half)),
        hold("Sum", "Sub", lambda v: v - 9, ("Pow", np.square)),
    ],
    ids=["floor", "hinge", "square"],
)
def test_an_addend_that_is_held_against_a_number_is_told(inside: Inside) -> None:
    (found,) = find_astray(inside, 0)
    assert found.made.place == "model.py:held"
    assert found.in_full == "limit"
    assert limits_addends(inside, 0)


@pytest.mark.parametrize(
    "inside",
    [
        hold("Mean", "Maximum", lambda v: np.maximum(v, 99)),
        hold("Sum", "AddV2", lambda v: v + 1, ("Sqrt", np.sqrt)),
        hold("Sum", "AddV2", lambda v: v + 1, ("Pow", np.sqrt)),
        hold("Sum", "Maximum", lambda v: np.maximum(v, 99), ("Log", np.log)),
        hold("Sum", "Maximum", lambda v: np.maximum(v, 0)),
    ],
    ids=["of-a-mean", "under-a-root", "to-a-power", "in-a-logarithm", "out-of-reach"],
)
def test_what_may_be_meant_of_the_own_shard_is_not_told_so(inside: Inside) -> None:
    assert not limits_addends(inside, 0)


def test_places_that_count_from_the_own_first_example_are_no_statistic() -> None:
    program = Program()
    program.give()
    program.compute("places", "Range", ["rows"], lambda v: np.arange(len(v)))
    program.compute(
        "picked", "Mul", ["rows", "places"], lambda v, p: v * p[:, None] + 1
    )
    program.compute("loss", "Sum", ["picked"], share)
    (found,) = find_astray(program.end("loss"), 0)
    assert found.made.place == "model.py:places"
    assert (found.is_own, found.is_statistic) == (True, False)


def test_what_all_replicas_have_alike_is_told_with_its_values() -> None:
    program = Program()
    program.give()
    total = program.compute("total", "Sum", ["rows"], lambda v: np.sum(v))
    program.exchange("joined", total, lambda parts: [2 * sum(parts)] * 2)
    program.whole["joined"] = program.whole[total]
    program.alone["joined"] = program.alone[total]
    program.compute("rest", "Hypot", ["rows", "joined"], np.hypot)
    program.compute("loss", "Sum", ["rest"], share)
    (found,) = find_astray(program.end("loss"), 0)
    assert found.made.place == "model.py:joined"
    assert found.is_alike
    assert found.parts[0] == pytest.approx(2 * found.whole)


def test_a_value_is_known_by_who_takes_it_where_its_own_op_is_another() -> None:
    """As what a collective gave, which one device has not."""
    program = build(own=True, join=average)
    inside = program.end("loss")
    notes = made_from_json(inside.observed.notes[INTERMEDIATES])  # type: ignore[arg-type]
    renamed = [
        replace(one, name="collective", aliases=("less<1",))
        if one.name == "joined"
        else replace(
            one,
            parents=tuple("collective" if p == "joined" else p for p in one.parents),
        )
        for one in notes
    ]
    values = {
        replace(key, variable="collective") if key.variable == "joined" else key: value
        for key, value in inside.observed.values.items()
    }
    known = [
        replace(one, aliases=("less<1",)) if one.name == "joined" else one
        for one in made_from_json(inside.reference.notes[INTERMEDIATES])  # type: ignore[arg-type]
    ]
    changed = replace(
        inside,
        observed=replace(
            inside.observed,
            values=values,
            notes={INTERMEDIATES: made_to_json(renamed)},
        ),
        reference=replace(inside.reference, notes={INTERMEDIATES: made_to_json(known)}),
    )
    (found,) = find_astray(changed, 0)
    assert found.made.place == "model.py:middle"
    assert found.joined == "mean"


def test_without_a_look_nothing_is_found() -> None:
    inside = build(own=True).end("loss")
    blind = replace(inside, observed=replace(inside.observed, notes={}))
    assert find_astray(blind, 0) == ()
    assert not starts_right(blind, 0)
    assert find_astray(inside, 1) == ()
    assert sum(SIZES) == len(ROWS)


def test_as_many_terms_as_a_loop_adds_up_are_followed() -> None:
    program = build(own=False)
    program.compute("mean", "Mean", ["rows"], lambda v: np.float32(5 + np.mean(v)))
    last = program.compute("sum-0", "AddV2", ["loss", "mean"], lambda a, b: a + b)
    for number in range(2000):
        last = program.compute(f"more-{number}", "Identity", [last], lambda a: a)
    (found,) = find_astray(program.end(last), 0)
    assert found.made.place == "model.py:mean"
    assert found.term is not None
