"""Where in a job this process stands: its strategy, its task and its first replica."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from distbench.errors import BadInputError, count_things
from distbench.worker.state.components import list_components


def check_strategy(strategy: Any) -> tf.distribute.Strategy:
    """The strategy that trains; the default one for None.

    Raises:
        BadInputError: It is no strategy, or one whose values nobody can take out.
    """
    if strategy is None:
        return tf.distribute.get_strategy()
    if not isinstance(strategy, tf.distribute.Strategy):
        raise BadInputError(
            "distbench.record needs the strategy that trains, or None for one device. "
            f"Received: an object of type '{type(strategy).__name__}'."
        )
    if isinstance(strategy, tf.distribute.TPUStrategy):
        raise BadInputError(
            "A TPU compiles a step as a whole, and no value can be taken out of its "
            "middle. Expected: a strategy for CPUs or GPUs."
        )
    return strategy


def check_copies(strategy: tf.distribute.Strategy, variables: Iterable[Any]) -> None:
    """Raise BadInputError for variables that more replicas hold than a strategy has.

    Those of another strategy are: a trace would have one replica of several.
    """
    for variable in variables:
        copies, replicas = len(list_components(variable)), strategy.num_replicas_in_sync
        if copies > replicas:
            raise BadInputError(
                f"The strategy that distbench.record was given has "
                f"{count_things(replicas, 'replica')} (None is one device), and "
                f"'{variable.name}' has copies on {copies}. Expected: the strategy "
                "under whose scope the model and the optimizer were made."
            )


def is_scheduled(strategy: tf.distribute.Strategy) -> bool:
    """Whether a coordinator schedules the steps: no call of the loop waits for them."""
    return isinstance(strategy, tf.distribute.ParameterServerStrategy)


def find_place(strategy: tf.distribute.Strategy) -> tuple[str, int]:
    """The name of this process' task, and the number of its first replica."""
    resolver = strategy.cluster_resolver
    if is_scheduled(strategy):
        return "chief-0", 0
    if resolver is None or not resolver.task_type:
        return "worker-0", 0
    place = getattr(strategy.extended, "_id_in_cluster", 0)
    first = place * len(strategy.extended.worker_devices)
    return f"{resolver.task_type}-{resolver.task_id}", first
