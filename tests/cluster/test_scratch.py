"""State that a step assigns before it uses it is told from what it goes on from."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from distbench.worker.state.scratch import list_scratch
from distbench.worker.state.variables import VariableTable, list_state

pytestmark = pytest.mark.cluster


def _list(step: Any) -> dict[str, str | None]:
    """By path, the type of the op that decides something."""
    kept = tf.Variable([1.0, 2.0], name="kept", trainable=False)
    other = tf.Variable([0.0, 0.0], name="other")
    traced = tf.function(lambda: step(kept, other)).get_concrete_function()
    table = VariableTable(list_state([kept, other], []))
    found = list_scratch(traced.graph, table, [])
    return {path: op and op.type for path, op in found.items()}


def _keep(kept: Any, other: Any) -> None:
    kept.assign(2 * other)
    other.assign_sub(kept)


def _collect(kept: Any, other: Any) -> None:
    kept.assign(tf.zeros_like(other))
    kept.assign_add(2 * other)
    other.assign_sub(kept.read_value())


@pytest.mark.parametrize("step", [_keep, _collect])
def test_what_is_assigned_before_it_is_used_is_scratch(step: Any) -> None:
    assert _list(step) == {"kept": None}


def _go_on(kept: Any, other: Any) -> None:
    kept.assign(0.9 * kept + other)
    other.assign_sub(kept)


def _add(kept: Any, other: Any) -> None:
    kept.assign_add(other)
    other.assign_sub(kept)


def _use_late(kept: Any, other: Any) -> None:
    other.assign_sub(kept)
    kept.assign(2 * other)


def _show(kept: Any, other: Any) -> None:
    kept.assign(2 * other)


def _print(kept: Any, other: Any) -> None:
    kept.assign(2 * other)
    tf.print(kept.read_value())


def _assign_now_and_then(kept: Any, other: Any) -> None:
    if tf.reduce_sum(other) > 0:
        kept.assign(2 * other)
    other.assign_sub(kept)


@pytest.mark.parametrize(
    "step", [_go_on, _add, _use_late, _show, _print, _assign_now_and_then]
)
def test_what_goes_on_or_is_of_no_use_is_none(step: Any) -> None:
    assert not _list(step)


def _return(kept: Any, other: Any) -> Any:
    kept.assign(2 * other)
    return tf.reduce_sum(kept)


def _normalise(kept: Any, other: Any) -> None:
    kept.assign(2 * other)
    other.assign_sub(kept[::-1] / tf.norm(kept) / tf.reduce_sum(tf.abs(kept)))


def _guard(kept: Any, other: Any) -> None:
    kept.assign(2 * other)
    checked = tf.debugging.check_numerics(kept, "kept")
    is_good = tf.reduce_all(tf.math.is_finite(checked))
    other.assign_sub(tf.where(is_good, kept, tf.zeros_like(kept)))


def _move_inside(kept: Any, other: Any) -> None:
    kept.assign(2 * other)
    other.assign_sub(tf.function(lambda value: 3.0 * value)(kept))


def _assign_inside(kept: Any, other: Any) -> None:
    """In a function of another one, which are given nothing but variables."""
    kept.assign(2 * other)
    tf.function(lambda: tf.function(lambda: other.assign_sub(kept))())()


def _limit_another_inside(kept: Any, other: Any) -> None:
    """Also where the function is given the other one in the place of what is kept."""
    kept.assign(2 * other)
    rate = tf.function(lambda value, limited: (value, tf.minimum(limited, 1.0)))
    half = tf.function(lambda value, more: [given / 2 for given in rate(value, more)])
    moved, limited = half(kept, other)
    halved, _ = rate(0.5 * kept, limited)
    other.assign_sub(moved * limited + half(other, other)[1] + halved)


def _transform(kept: Any, other: Any) -> None:
    kept.assign(2 * other)
    spectrum = tf.signal.fft(tf.cast(kept, tf.complex64))
    other.assign_sub(tf.math.real(tf.signal.ifft(spectrum)))


@pytest.mark.parametrize(
    "step",
    [
        _return,
        _normalise,
        _guard,
        _move_inside,
        _assign_inside,
        _limit_another_inside,
        _transform,
    ],
)
def test_what_numbers_show_decides_nothing(step: Any) -> None:
    assert _list(step) == {"kept": None}


def _limit(kept: Any, other: Any) -> None:
    kept.assign(2 * other)
    other.assign_sub(kept * tf.minimum(1.0, 3.0 / tf.norm(kept)))


def _rectify(kept: Any, other: Any) -> None:
    """Which is a limit: what is below 3 is lost."""
    kept.assign(2 * other)
    other.assign_sub(tf.nn.relu(kept - 3.0))


def _saturate(kept: Any, other: Any) -> None:
    kept.assign(2 * other)
    other.assign_sub(tf.sigmoid(60 * kept))


def _count(kept: Any, other: Any) -> None:
    kept.assign(2 * other)
    other.assign_add(tf.cast(kept > 1.0, tf.float32))


def _round(kept: Any, other: Any) -> None:
    kept.assign(2 * other)
    other.assign_sub(tf.round(kept))


def _cut(kept: Any, other: Any) -> None:
    kept.assign(2 * other)
    other.assign_sub(tf.cast(tf.cast(kept, tf.int32), tf.float32))


def _branch(kept: Any, other: Any) -> None:
    kept.assign(2 * other)
    total = tf.reduce_sum(kept)
    other.assign_sub(tf.cond(total > 1.0, lambda: kept / 2, lambda: kept + 0.0))


def _limit_inside(kept: Any, other: Any) -> None:
    kept.assign(2 * other)
    other.assign_sub(tf.function(lambda value: tf.minimum(value, 1.0))(kept))


def _limit_what_is_moved_inside(kept: Any, other: Any) -> None:
    kept.assign(2 * other)
    other.assign_sub(tf.minimum(tf.function(lambda value: 3.0 * value)(kept), 1.0))


def _move_in_a_branch(kept: Any, other: Any) -> None:
    """Which no condition on what is kept chooses: the others were not seen."""
    kept.assign(2 * other)
    moves = [lambda: other.assign_sub(kept), lambda: other.assign_sub(2 * kept)]
    tf.switch_case(tf.cast(other[0] > 1.0, tf.int32), moves)


@pytest.mark.parametrize(
    ("step", "op"),
    [
        (_limit, "Minimum"),
        (_rectify, "Relu"),
        (_saturate, "Sigmoid"),
        (_count, "Greater"),
        (_round, "Round"),
        (_cut, "Cast"),
        (_branch, "If"),
        (_limit_inside, "Minimum"),
        (_limit_what_is_moved_inside, "Minimum"),
        (_move_in_a_branch, "Case"),
    ],
)
def test_what_other_numbers_may_change_decides(step: Any, op: str) -> None:
    assert _list(step) == {"kept": op}


def test_a_whole_number_may_decide_anything() -> None:
    kept = tf.Variable(1, name="kept", trainable=False)
    other = tf.Variable(0.0, name="other")

    def step() -> None:
        kept.assign(tf.cast(other, tf.int32))
        other.assign_sub(tf.cast(kept, tf.float32))

    graph = tf.function(step).get_concrete_function().graph
    table = VariableTable(list_state([kept, other], []))
    assert list_scratch(graph, table, [])["kept"].type == "ReadVariableOp"


def test_what_a_function_assigns_to_other_scratch_paper_is_followed() -> None:
    kept = tf.Variable([1.0, 2.0], name="kept", trainable=False)
    more = tf.Variable([1.0, 2.0], name="more", trainable=False)
    other = tf.Variable([0.0, 0.0], name="other")

    def step() -> None:
        kept.assign(2 * other)
        more.assign(other)
        tf.function(lambda: more.assign_add(kept))()
        other.assign_sub(tf.minimum(more, 1.0))

    graph = tf.function(step).get_concrete_function().graph
    table = VariableTable(list_state([kept, more, other], []))
    found = list_scratch(graph, table, [])
    assert {path: op.type for path, op in found.items()} == {
        "kept": "Minimum",
        "more": "Minimum",
    }


def test_what_is_made_of_a_sum_is_not_followed() -> None:
    kept = tf.Variable([1.0, 2.0], name="kept", trainable=False)
    other = tf.Variable([0.0, 0.0], name="other")
    sums = []

    def step() -> None:
        kept.assign(2 * other)
        sums.append(2 * kept)
        other.assign_sub(tf.minimum(sums[0], 1.0))

    graph = tf.function(step).get_concrete_function().graph
    table = VariableTable(list_state([kept, other], []))
    assert list_scratch(graph, table, sums) == {"kept": None}
