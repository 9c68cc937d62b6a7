"""`tf_keras.optimizers.legacy.Optimizer` (OptimizerV2).

Order of its phases (tf_keras/src/optimizers/legacy/optimizer_v2.py, 2.21): the argument
of `apply_gradients` -> `_aggregate_gradients`, unless the flag is off ->
`_transform_gradients` (the clips, then the transformers) -> `_resource_apply_dense` or
`_resource_apply_sparse_duplicate_indices` on every copy of the variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from distbench.errors import BadInputError
from distbench.scenario.choices import PATHS
from distbench.worker.families.family import Family, Pairs
from distbench.worker.families.resource_rules import ResourceRuleTaps
from distbench.worker.process.intercept import Undo, intercept
from distbench.worker.state.variables import VariableTable
from distbench.worker.taps.board import TapBoard


def install(optimizer: Any, board: TapBoard, table: VariableTable) -> list[Undo]:
    """Put taps on an instance; every method still does what it did."""
    taps = _LegacyTaps(board, table)
    return [
        intercept(optimizer, "apply_gradients", taps.apply_gradients),
        intercept(optimizer, "_aggregate_gradients", taps.aggregate_gradients),
        intercept(optimizer, "_transform_gradients", taps.transform_gradients),
        *taps.intercept_rules(optimizer),
    ]


def hand_over(optimizer: Any, pairs: Pairs, *, aggregate: bool = True) -> None:
    """See `HandOver`."""
    options = {} if aggregate else {"experimental_aggregate_gradients": False}
    optimizer.apply_gradients(pairs, **options)


def make_slots(optimizer: Any, variables: Sequence[Any]) -> None:
    """Make counter, hyperparameters and slots, by the names that an update gives."""
    with tf.name_scope(optimizer._name):
        optimizer._create_all_weights(list(variables))


FAMILY = Family(
    bases={
        "tf_keras.src.optimizers.legacy.optimizer_v2.OptimizerV2": (
            "tf_keras.optimizers.legacy.Optimizer"
        ),
        # TensorFlow still carries the copy of Keras that this class comes from.
        "tensorflow.python.keras.optimizer_v2.optimizer_v2.OptimizerV2": (
            "tensorflow.python.keras.optimizer_v2.OptimizerV2"
        ),
    },
    controls={
        "tf_keras.src.optimizers.legacy.optimizer_v2.OptimizerV2": "make_legacy_sgd",
        "tensorflow.python.keras.optimizer_v2.optimizer_v2.OptimizerV2": (
            "make_sgd_inside_tensorflow"
        ),
    },
    install=install,
    hand_over=hand_over,
    paths=tuple(PATHS),
    make_slots=make_slots,
    options=("clipnorm", "clipvalue", "global_clipnorm"),
)


class _LegacyTaps(ResourceRuleTaps):
    """What stands in front of each method."""

    def aggregate_gradients(self, original: Any, *args: Any, **kw: Any) -> Any:
        # A loss scale sums by itself, and goes on only if all is finite.
        with self._board.enter_once("reduced_gradient") as outermost:
            reduced = original(*args, **kw)
            return self.tap_pairs(_check_pairs(reduced)) if outermost else reduced

    def transform_gradients(self, original: Any, grads_and_vars: Any) -> Any:
        with self._board.enter_once("reduced_gradient") as outermost:
            if outermost:
                grads_and_vars = self.tap_pairs(grads_and_vars)
            return original(grads_and_vars)


def _check_pairs(reduced: Any) -> Any:
    """What an aggregator returned, if it is what the optimizer unpacks next.

    Among several replicas the optimizer says so itself, which is a finding.

    Raises:
        BadInputError: It is something else on one device, of which TensorFlow says no
            more than that it cannot be iterated, in a line of its own.
    """
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
        return reduced
    is_list = isinstance(reduced, Iterable) and not tf.is_tensor(reduced)
    pairs = list(reduced) if is_list else []
    others = [one for one in pairs if not _is_pair(one)]
    if is_list and not others:
        return pairs
    kind = type(reduced).__name__
    if others:
        kind = f"{kind} with {type(others[0]).__name__} in it"
    raise BadInputError(
        f"The gradient_aggregator, or _aggregate_gradients, returned a {kind}. "
        "Expected: a list of (gradient, variable) pairs, as it was given. Return "
        "list(zip(reduced, [variable for _, variable in grads_and_vars]))."
    )


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2
