"""The terms of a loss, as a graph adds them up."""

from __future__ import annotations

import pytest
import tensorflow as tf

from distbench.worker.state.variables import VariableTable, list_state
from distbench.worker.taps.board import TapBoard
from distbench.worker.taps.tapes import watch_tapes
from distbench.worker.taps.terms import find_terms

pytestmark = pytest.mark.cluster


def _find_factors(add_up, most: int = 9) -> list[tuple[str, float]]:
    """The terms of what a function makes of three numbers, by their names."""
    with tf.Graph().as_default():
        numbers = [tf.compat.v1.placeholder(tf.float32, [], name) for name in "xyz"]
        found = find_terms(add_up(*numbers), most)
        return [(term.op.name, factor) for term, factor in found]


def test_sums_and_constant_factors_are_followed_in_their_order() -> None:
    found = _find_factors(lambda x, y, z: 2.0 * (x - y / 4.0) + 1.0 - tf.identity(z))
    assert found == [("x", 2.0), ("y", -0.5), ("z", -1.0)]


def test_a_list_of_numbers_that_is_summed_is_taken_apart() -> None:
    found = _find_factors(lambda x, y, z: tf.reduce_sum(tf.stack([x, y]) * [1.0, 0.5]))
    assert found == [("x", 1.0), ("y", 0.5)]
    found = _find_factors(lambda x, y, z: tf.reduce_mean(tf.stack([x, -y]) - z / 2.0))
    assert found == [("x", 0.5), ("y", -0.5), ("z", -0.5)]


def test_an_element_of_a_product_of_lists_is_a_term() -> None:
    found = _find_factors(lambda x, y, z: tf.reduce_sum(z * tf.stack([x, y])))
    assert [name for name, _ in found] == ["mul", "mul"]
    assert [list(factor) for _, factor in found] == [[1.0, 0.0], [0.0, 1.0]]


def test_the_losses_of_a_few_examples_are_one_term() -> None:
    found = _find_factors(lambda x, y, z: tf.reduce_sum(tf.reshape(x, [1]) * [1.0, 2]))
    assert found == [("Sum", 1.0)]


def test_what_is_no_sum_is_one_term() -> None:
    assert _find_factors(lambda x, y, z: x * y) == [("mul", 1.0)]
    assert _find_factors(lambda x, y, z: tf.add(1.0, 2.0)) == [("Add", 1.0)]


def test_as_many_as_a_loop_adds_up_are_followed() -> None:
    def add_up(x, y, z):
        loss = x / 2.0
        for _ in range(2000):
            loss += 1e-3
        return loss + 3.0 * y

    assert _find_factors(add_up) == [("x", 0.5), ("y", 3.0)]


def test_of_more_than_are_wanted_the_outermost_sums_are_taken_apart() -> None:
    def join(x, y, z):
        return x + 2.0 * tf.add(y + z, x * z, name="within")

    found = _find_factors(join, most=3)
    assert found == [("x", 1.0), ("add", 2.0), ("mul", 2.0)]
    assert _find_factors(join, most=2) == [("x", 1.0), ("within", 2.0)]
    assert _find_factors(join, most=1) == [("add_1", 1.0)]


def test_no_more_are_made_than_are_wanted() -> None:
    def double_often(x, y, z):
        loss = x
        for _ in range(60):
            loss += loss
        return loss

    assert len(_find_factors(double_often, most=3)) == 3


def test_what_is_differentiated_between_steps_is_no_loss() -> None:
    board, loss = TapBoard(), tf.constant(1.0)
    with board.leave_step():
        board.remember_target(tf.constant(2.0), trains=True)
    board.remember_target(loss, trains=True)
    assert board.seen.trained_by[0] == [loss]
    assert board.list_targets() == [loss]


def test_a_loss_that_is_told_before_it_is_differentiated_has_its_own_term() -> None:
    board = TapBoard()
    with tf.Graph().as_default():
        x, y = (tf.compat.v1.placeholder(tf.float32, []) for _ in "xy")
        board.begin_replica(x)
        assert board.take_loss(x) is x
        board.term = 1
        told = board.take_loss(x + 4.0 * y)
        known = tf.constant(2.0)
        board.remember_term(known)
        assert board.take_loss(x) is known
        board.begin_replica(x)  # What another trace found is none of this one.
        assert board.take_loss(x + y) is not known
        with pytest.raises(IndexError):
            board.take_loss(x)
        with tf.compat.v1.Session() as session:
            assert session.run(told, {x: 1.0, y: 3.0}) == 12.0


@pytest.mark.parametrize(
    ("given", "times"),
    [([], 1.0), ([None], 1.0), ([3.0], 3.0), ([[3.0]], 3.0)],
)
@pytest.mark.parametrize("is_named", [False, True])
def test_a_term_is_differentiated_alone_whatever_it_is_multiplied_by(
    given: list, times: float, is_named: bool
) -> None:
    board, variable = TapBoard(), tf.Variable(2.0, name="w")
    undo = watch_tapes(board, VariableTable(list_state([variable])))
    try:

        @tf.function(autograph=False)
        def step():
            values = tf.nest.map_structure(
                lambda g: None if g is None else tf.constant(g), given
            )
            named = {"output_gradients": values[0]} if is_named and values else {}
            board.begin_replica(())
            with tf.GradientTape() as tape:
                loss = 5.0 * variable + variable**2
            return tape.gradient(loss, variable, *([] if named else values), **named)

        board.term = 0
        found = step()
        assert (float(found), found.shape.rank) == (5.0 * times, 0)
    finally:
        undo()
