"""`tf_keras.optimizers.legacy.Optimizer` (OptimizerV2).

Order of its phases (tf_keras/src/optimizers/legacy/optimizer_v2.py, 2.21): the argument
of `apply_gradients` -> `_aggregate_gradients`, unless the flag is off ->
`_transform_gradients` (the clips, then the transformers) -> `_resource_apply_dense` or
`_resource_apply_sparse_duplicate_indices` on every copy of the variable.
"""

from __future__ import annotations

import inspect
from typing import Any

from distbench.worker.intercept import call_converted, intercept
from distbench.worker.state import VariableTable
from distbench.worker.taps import TapBoard

BASE = "tf_keras.src.optimizers.legacy.optimizer_v2.OptimizerV2"
_FLAG = "experimental_aggregate_gradients"


def install(optimizer: Any, board: TapBoard, table: VariableTable) -> None:
    """Put taps on an instance; every method still does what it did."""

    def tap_pairs(phase: Any, pairs: Any) -> list[tuple[Any, Any]]:
        return [
            (g, v) if g is None else (board.tap(phase, table.find_path(v), g), v)
            for g, v in pairs
        ]

    def apply_gradients(original: Any, pairs: Any, *args: Any, **kwargs: Any) -> Any:
        # The argument is often a `zip`, which can be read once.
        pairs = list(pairs)
        with board.enter_call() as outermost:
            if outermost and _is_aggregating(original, pairs, args, kwargs):
                pairs = tap_pairs("local_gradient", pairs)
            elif outermost:
                # The user reduced them already: the tape saw the local ones.
                for _, variable in pairs:
                    path = table.find_path(variable)
                    if (seen := board.recall_gradient(path)) is not None:
                        board.tap("local_gradient", path, seen)
            return call_converted(original, pairs, *args, **kwargs)

    def transform_gradients(original: Any, pairs: Any) -> Any:
        with board.enter_once("reduced_gradient") as outermost:
            if outermost:
                pairs = tap_pairs("reduced_gradient", pairs)
            return original(pairs)

    def apply_dense(original: Any, grad: Any, handle: Any, *a: Any, **k: Any) -> Any:
        with board.enter_once("applied_gradient") as outermost:
            if outermost:
                grad = board.tap("applied_gradient", table.find_path(handle), grad)
            return original(grad, handle, *a, **k)

    def apply_sparse(
        original: Any, grad: Any, handle: Any, indices: Any, *a: Any, **k: Any
    ) -> Any:
        with board.enter_once("applied_gradient") as outermost:
            if outermost:
                slices = table.make_slices(handle, grad, indices)
                slices = board.tap("applied_gradient", table.find_path(handle), slices)
                grad, indices = slices.values, slices.indices
            return original(grad, handle, indices, *a, **k)

    intercept(optimizer, "apply_gradients", apply_gradients)
    intercept(optimizer, "_transform_gradients", transform_gradients)
    intercept(optimizer, "_resource_apply_dense", apply_dense)
    intercept(optimizer, "_resource_apply_sparse_duplicate_indices", apply_sparse)
    intercept(optimizer, "_resource_apply_sparse", apply_sparse)


def _is_aggregating(original: Any, pairs: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call leaves the sum over replicas to the optimizer."""
    try:
        bound = inspect.signature(original).bind(pairs, *args, **kwargs)
    except TypeError:
        return True  # The call itself will say what is wrong with it.
    bound.apply_defaults()
    if _FLAG in bound.arguments:
        return bool(bound.arguments[_FLAG])
    return bool(bound.arguments.get("kwargs", {}).get(_FLAG, True))
