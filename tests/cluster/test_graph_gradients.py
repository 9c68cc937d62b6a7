"""What `tf.gradients` gives is seen as what a tape gives; what loops do is not."""

from __future__ import annotations

import pytest
import tensorflow as tf
from tensorflow.python.ops import gradients_impl, gradients_util

from distbench.worker.state.variables import VariableTable, list_state
from distbench.worker.taps.board import TapBoard
from distbench.worker.taps.tapes import watch_tapes

pytestmark = pytest.mark.cluster


def _power(variable: tf.Variable) -> tf.Tensor:
    """Its third power, by a loop and a function whose bodies have gradients too."""

    @tf.function
    def times(number: tf.Tensor) -> tf.Tensor:
        return number * variable

    return tf.while_loop(
        lambda n, _: n < 3, lambda n, total: (n + 1, times(total)), (0, 1.0)
    )[1]


@pytest.mark.parametrize("version", [tf.gradients, tf.compat.v1.gradients])
@pytest.mark.parametrize("is_list", [False, True])
def test_a_graphs_own_gradients_alone_are_seen(version, is_list: bool) -> None:
    board, variable = TapBoard(), tf.Variable(2.0, name="w")
    undo = watch_tapes(board, VariableTable(list_state([variable])))
    seen = []

    @tf.function(autograph=False)
    def step():
        board.begin_replica(())
        loss = _power(variable)
        found = version([loss] if is_list else loss, [variable], grad_ys=None)
        seen.append([target is loss for target in board.list_targets()])
        return found

    try:
        assert [float(number) for number in step()] == [12.0]
    finally:
        undo()
    assert seen == [[True]]
    assert gradients_impl.gradients_util is gradients_util


def test_a_term_of_a_graphs_loss_is_differentiated_alone() -> None:
    board, variable = TapBoard(), tf.Variable(2.0, name="w")
    undo = watch_tapes(board, VariableTable(list_state([variable])))

    @tf.function(autograph=False)
    def step():
        board.begin_replica(())
        return tf.gradients([5.0 * variable + variable**2], variable, [3.0])

    board.term = 0
    try:
        assert [float(number) for number in step()] == [15.0]
    finally:
        undo()
