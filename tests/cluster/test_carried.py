"""State that a step makes nothing of is told from state that it uses."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from distbench.worker.state.carried import list_carried
from distbench.worker.state.variables import VariableTable, list_state

pytestmark = pytest.mark.cluster


def _list(step: Any) -> tuple[str, ...]:
    kept = tf.Variable(
        [1.0, 2.0],
        name="kept",
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )
    other = tf.Variable([0.0, 0.0], name="other")
    traced = tf.function(lambda: step(kept, other)).get_concrete_function()
    return list_carried(traced.graph, VariableTable(list_state([kept, other], [])))


def _average(kept: Any, other: Any) -> None:
    kept.assign(0.9 * kept + 0.1 * other)


def _count(kept: Any, other: Any) -> None:
    kept.assign_add(other)


def _read_in_vain(kept: Any, other: Any) -> None:
    _average(kept, other)
    tf.norm(kept)


@pytest.mark.parametrize("step", [_average, _count, _read_in_vain])
def test_what_only_leads_itself_is_carried(step: Any) -> None:
    assert _list(step) == ("kept",)


def _use(kept: Any, other: Any) -> None:
    _average(kept, other)
    other.assign_sub(kept)


def _return(kept: Any, other: Any) -> Any:
    _average(kept, other)
    return tf.norm(kept)


def _show(kept: Any, other: Any) -> None:
    _average(kept, other)
    tf.print(kept)


def _use_sometimes(kept: Any, other: Any) -> None:
    _average(kept, other)
    if other[0] > 1.0:
        other.assign_sub(kept)


def _gather(kept: Any, other: Any) -> None:
    _average(kept, other)
    other.assign_sub(tf.gather(kept, [1, 0]))


def _use_in_function(kept: Any, other: Any) -> None:
    tf.function(_use)(kept, other)


def _not_at_all(kept: Any, other: Any) -> None:
    other.assign_add([1.0, 1.0])


@pytest.mark.parametrize(
    "step",
    [_use, _return, _show, _use_sometimes, _gather, _use_in_function, _not_at_all],
)
def test_what_something_else_is_made_of_is_not(step: Any) -> None:
    assert _list(step) == ()
