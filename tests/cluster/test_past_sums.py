"""Which draws lead state by another way than a sum over the replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from distbench.samples.lazy import tf
from distbench.samples.replicas import all_reduce, find_replica, update
from distbench.worker.taps.past_sums import list_past_sums

pytestmark = pytest.mark.cluster

Step = Callable[[Any], None]


def draw() -> Any:
    return tf.random.stateless_normal([4], [3, find_replica()])


def add_up(variable: Any) -> None:
    variable.assign(0.9 * variable + all_reduce("sum", draw() * variable))


def add_up_within_a_function(variable: Any) -> None:
    drawn = tf.function(lambda: draw() * variable.read_value())()
    variable.assign(all_reduce("sum", drawn))


def add_up_across(variable: Any) -> None:
    def merge(strategy: Any, variable: Any, value: Any) -> None:
        total = strategy.extended.reduce_to("SUM", value, variable)
        strategy.extended.update(variable, lambda v, t: v.assign(t), args=(total,))

    tf.distribute.get_replica_context().merge_call(merge, args=(variable, draw()))


def assign(variable: Any) -> None:
    variable.assign(draw())


def assign_within_a_function(variable: Any) -> None:
    variable.assign(tf.function(draw)())


def go_along(variable: Any) -> None:
    drawn = draw()
    variable.assign(all_reduce("sum", tf.reduce_sum(drawn)) * drawn)


def change_each_copy(variable: Any) -> None:
    update(variable, lambda copy, value: copy.assign_add(value), draw())


@pytest.mark.parametrize(
    ("step", "is_past"),
    [
        (add_up, False),
        (add_up_within_a_function, False),
        (add_up_across, False),
        (assign, True),
        (assign_within_a_function, True),
        (go_along, True),
        (change_each_copy, True),
    ],
)
def test_draws_are_told_that_lead_state_past_a_sum(step: Step, is_past: bool) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        variable = tf.Variable(
            tf.zeros([4]), aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )
    run = tf.function(lambda: strategy.run(step, args=(variable,)))
    graph = run.get_concrete_function().graph
    known = {id(copy.handle) for copy in variable.values}
    found = list_past_sums(graph, known, 2)
    assert bool(found) is is_past
    assert all("test_past_sums.py:" in line for line in found)
