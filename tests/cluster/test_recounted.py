"""What is told to a step that asks how many replicas there are."""

from __future__ import annotations

import pytest

import distbench

pytestmark = pytest.mark.cluster


def count_replicas() -> tuple[list[int], int]:
    """In a task: what a step is told by each way of asking, and what is told later."""
    from contextlib import suppress

    import tensorflow as tf

    from distbench.worker.one_device.recounted import _told

    def ask() -> list[int]:
        context = tf.distribute.get_replica_context()
        strategies = (tf.distribute.get_strategy(), context.strategy)
        told = [one.num_replicas_in_sync for one in strategies]
        return [*told, context.num_replicas_in_sync]

    seen: list[int] = []
    with suppress(ZeroDivisionError), _told(3):
        seen = ask()
        raise ZeroDivisionError
    return seen, max(ask())


def test_a_step_is_told_of_more_replicas_as_long_as_it_is_traced() -> None:
    [(seen, later)] = distbench.run(count_replicas, "one").values()
    assert seen == [3, 3, 3]
    assert later == 1
