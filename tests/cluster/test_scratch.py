"""State that a step assigns before it uses it is told from what it goes on from."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from distbench.worker.state.scratch import list_scratch
from distbench.worker.state.variables import VariableTable, list_state

pytestmark = pytest.mark.cluster


def _list(step: Any) -> tuple[str, ...]:
    kept = tf.Variable([1.0, 2.0], name="kept", trainable=False)
    other = tf.Variable([0.0, 0.0], name="other")
    traced = tf.function(lambda: step(kept, other)).get_concrete_function()
    return list_scratch(traced.graph, VariableTable(list_state([kept, other], [])))


def _keep(kept: Any, other: Any) -> None:
    kept.assign(2 * other)
    other.assign_sub(kept)


def _collect(kept: Any, other: Any) -> None:
    kept.assign(tf.zeros_like(other))
    kept.assign_add(2 * other)
    other.assign_sub(kept.read_value())


@pytest.mark.parametrize("step", [_keep, _collect])
def test_what_is_assigned_before_it_is_used_is_scratch(step: Any) -> None:
    assert _list(step) == ("kept",)


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


def _assign_now_and_then(kept: Any, other: Any) -> None:
    if tf.reduce_sum(other) > 0:
        kept.assign(2 * other)
    other.assign_sub(kept)


@pytest.mark.parametrize("step", [_go_on, _add, _use_late, _show, _assign_now_and_then])
def test_what_goes_on_or_is_of_no_use_is_none(step: Any) -> None:
    assert _list(step) == ()
