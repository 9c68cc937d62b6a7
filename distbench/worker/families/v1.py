"""`tf.compat.v1.train.Optimizer`, in TensorFlow 2.

Order of its phases (tensorflow/python/training/optimizer.py, 2.21): the argument of
`apply_gradients` -> under a strategy, unless it is told to skip the sum,
`_distributed_apply`, which sums with `batch_reduce_to` -> `_prepare` ->
`_resource_apply_dense` or `_resource_apply_sparse_duplicate_indices` on every copy of
the variable -> `_finish` -> `global_step`. Nothing happens to the sums on the way.
`_apply_dense` and `_apply_sparse` are the rules for reference variables, which
TensorFlow 2 makes none of (`_get_processor`): a subclass that has no others raises on
one device already.
Before it, `compute_gradients` divides a loss by N only for a strategy in Estimator's
mode whose graph saw a mean last (`_scale_loss`).
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from distbench.trace import Phase
from distbench.worker.families.family import Family, Pairs
from distbench.worker.families.resource_rules import ResourceRuleTaps
from distbench.worker.process.intercept import Undo, intercept
from distbench.worker.state.variables import VariableTable
from distbench.worker.taps.board import TapBoard

_BASE = "tensorflow.python.training.optimizer.Optimizer"
_COUNTER = "_distbench_global_step"
"""Attribute with the counter that each call hands over: the optimizer has none."""


def install(optimizer: Any, board: TapBoard, table: VariableTable) -> list[Undo]:
    """Put taps on an instance; every method still does what it did."""
    taps = _V1Taps(board, table, optimizer)
    return [
        intercept(optimizer, "apply_gradients", taps.apply_gradients),
        *taps.intercept_rules(optimizer),
        lambda: vars(optimizer).pop(_COUNTER, None),
    ]


def hand_over(optimizer: Any, pairs: Pairs, *, aggregate: bool = True) -> None:
    """See `HandOver`."""
    options: dict[str, Any] = {} if aggregate else {"skip_gradients_aggregation": True}
    optimizer.apply_gradients(pairs, global_step=find_counter(optimizer), **options)


def build(optimizer: Any, variables: Sequence[Any]) -> None:  # noqa: ARG001  # slots are made in the first step
    """Make the counter that users of the family bring along."""
    counter = tf.Variable(
        0,
        name="global_step",
        dtype=tf.int64,
        trainable=False,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )
    setattr(optimizer, _COUNTER, counter)


def find_counter(optimizer: Any) -> Any:
    """The counter that was handed over, or None."""
    return getattr(optimizer, _COUNTER, None)


def read_config(kind: Any, optimizer: Any) -> dict[str, Any]:
    """The arguments of a stock class, which all of them keep under their names.

    Raises:
        TypeError: One is no plain value: a function, say, or a tensor of some graph.
    """
    held = vars(optimizer)
    found = {}
    for name in list(inspect.signature(kind.__init__).parameters)[1:]:
        # Adam and Adadelta call their rate otherwise.
        key = "_lr" if name == "learning_rate" and "_lr" in held else f"_{name}"
        if not isinstance(held[key], (int, float, str)):
            raise TypeError(f"{name} is of type {type(held[key]).__name__}")
        found[name] = held[key]
    return found


def make_slots(optimizer: Any, variables: Sequence[Any]) -> None:
    """Make slots, as the first update does."""
    optimizer._create_slots(list(variables))


FAMILY = Family(
    bases={_BASE: "tf.compat.v1.train.Optimizer"},
    controls={_BASE: "make_v1_sgd"},
    install=install,
    hand_over=hand_over,
    paths=("default", "user", "none"),
    build=build,
    make_slots=make_slots,
    find_counter=find_counter,
    descent="GradientDescentOptimizer",
    read_config=read_config,
)


class _V1Taps(ResourceRuleTaps):
    """What stands in front of each method."""

    # `batch_reduce_to` runs across replicas, where no single one can be recorded; its
    # result comes to the rules as it is.
    phases: tuple[Phase, ...] = ("reduced_gradient", "applied_gradient")

    def __init__(self, board: TapBoard, table: VariableTable, optimizer: Any) -> None:
        super().__init__(board, table)
        self._optimizer = optimizer

    def apply_gradients(
        self, original: Any, grads_and_vars: Any, *args: Any, **kw: Any
    ) -> Any:
        """In front of `apply_gradients`: also finds the counter."""
        bound = inspect.signature(original).bind_partial(grads_and_vars, *args, **kw)
        given = bound.arguments
        if given.get("global_step") is not None:
            setattr(self._optimizer, _COUNTER, given["global_step"])
        return super().apply_gradients(original, grads_and_vars, *args, **kw)
