"""Where a step goes astray behind its gradients: what it solves with, micro-steps."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from inside_runs import ROWS, SIZES, Program, add_up, share

from distbench.compare.inside.intermediates import (
    find_astray,
)
from distbench.evidence import Inside
from distbench.trace import WHOLE, Trace, TraceKey, VariableInfo
from distbench.trace.intermediates import name_given


def solve(*, own: bool) -> Inside:
    """A sum of the examples, over what is made of it: a step that is not linear."""
    program = Program()
    program.give()
    below = total = program.compute("total", "Sum", ["rows"], np.sum)
    square = program.compute("square", "Square", [total], np.square)
    if not own:
        below = program.exchange("joined", total, add_up)
        program.whole[below] = program.whole[total]
        program.alone[below] = program.alone[total]
    program.compute("step", "Reciprocal", [below], lambda v: 1 / v)
    program.compute("loss", "Sum", ["rows"], share)
    return program.end("loss", moves={"weight": "step", "other": square})


def test_what_a_step_makes_of_the_own_addend_is_named_by_what_it_moves() -> None:
    inside = solve(own=True)
    (found,) = find_astray(inside, 0, {"weight"})
    assert found.made.place == "model.py:step"
    assert (found.of_share, found.is_own, found.is_statistic) == (True, True, True)
    assert find_astray(inside, 0) == ()
    assert find_astray(inside, 0, {"third"}) == ()


def test_what_is_made_of_the_sum_is_right_and_other_steps_are_left_out() -> None:
    inside = solve(own=False)
    assert find_astray(inside, 0, {"weight"}) == ()
    (found,) = find_astray(inside, 0, {"weight", "other"})
    assert found.made.place == "model.py:square"


def test_behind_what_is_infinite_on_one_device_nothing_is_followed() -> None:
    """As where a loss overflows: a step is skipped by what nobody can compare."""
    program = Program()
    program.give()
    count = program.compute("count", "Shape", ["rows"], lambda v: np.float32(len(v)))
    program.compute("huge", "Mul", ["rows", count], lambda v, n: v[0] * n * np.inf)
    program.compute(
        "step", "Where", ["huge"], np.size, replica=lambda v: 0 * np.size(v)
    )
    program.compute("loss", "Sum", ["rows"], share)
    inside = program.end("loss", moves={"weight": "step"})
    assert find_astray(inside, 0, {"weight"}) == ()


def count_to(piece: int) -> Any:
    return lambda n: np.asarray(piece * n // 2, np.int32)


def add_rows(rows: np.ndarray) -> np.ndarray:
    return np.sum(rows, axis=0)


def micro_steps(change: Any, *, told: bool = True, give: Any = add_rows) -> Inside:
    """Sums of each half of the own examples, something done to each, added up.

    Replicas `give` something else of them.
    """
    program = Program()
    program.give()
    program.compute("n", "StridedSlice", [], lambda: np.asarray(0, np.int32))
    program.whole["n"] = np.asarray(len(ROWS), np.int32)
    sizes = [np.asarray(size, np.int32) for size in SIZES]
    program.parts["n"], program.alone["n"] = list(sizes), list(sizes)
    made = []
    for piece in range(2):
        ends = [
            program.compute(f"{name}{piece}", "FloorDiv", ["n"], count_to(place))
            for name, place in (("low", piece), ("high", piece + 1))
        ]
        program.compute(
            f"given{piece}",
            "MatMul",
            ["rows", *ends],
            lambda rows, low, high: add_rows(rows[low:high]),
            replica=lambda rows, low, high: give(rows[low:high]),
        )
        program.compute(f"made{piece}", "Square", [f"given{piece}"], change)
        made.append(f"made{piece}")
    program.compute("sum", "AddV2", made, lambda a, b: a + b)
    inside = program.end(moves={"w": "sum"})
    info = VariableInfo(path="w", role="variable", shape=(2,), dtype="float32")
    infos = (info,) if told else ()
    return Inside(
        reference=tell_given(inside.reference, infos),
        observed=tell_given(inside.observed, infos),
    )


def tell_given(trace: Trace, infos: tuple[VariableInfo, ...]) -> Trace:
    """With what a tape gave in each micro-step."""
    given = {
        TraceKey(
            step=0, phase="loss", variable=name_given(number, "w"), replica=replica
        ): value
        for number in range(2)
        for replica in (WHOLE, 0, 1)
        if (
            value := trace.get(
                TraceKey(
                    step=0, phase="loss", variable=f"given{number}", replica=replica
                )
            )
        )
        is not None
    }
    return replace(trace, values={**trace.values, **given}, variables=infos)


def test_micro_steps_that_add_up_are_right_whatever_examples_each_is_of() -> None:
    assert find_astray(micro_steps(lambda v: v * np.float32(2)), 0, {"w"}) == ()
    found = find_astray(micro_steps(lambda v: v**2), 0, {"w"})
    assert [one.made.name for one in found] == ["made0", "made1"]
    assert all(one.is_statistic and one.of_share for one in found)


def test_a_multiple_of_all_gradients_is_an_addend_as_well() -> None:
    inside = micro_steps(lambda v: v**2, give=lambda rows: 2 * add_rows(rows))
    found = find_astray(inside, 0, {"w"})
    assert [one.made.name for one in found] == ["made0", "made1"]
    assert all(one.of_share for one in found)


def test_of_gradients_that_do_not_add_up_no_step_tells_where_they_begin() -> None:
    inside = micro_steps(lambda v: v**2, give=partial(np.mean, axis=0))
    assert find_astray(inside, 0, {"w"}) == ()


def test_how_many_examples_a_replica_has_leads_nobody_astray() -> None:
    found = find_astray(micro_steps(lambda v: v**2, told=False), 0, {"w"})
    assert [one.made.name for one in found] == ["given0", "given1"]
