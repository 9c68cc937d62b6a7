"""`tf_keras.optimizers.legacy.Optimizer` (OptimizerV2).

Order of its phases (tf_keras/src/optimizers/legacy/optimizer_v2.py, 2.21): the argument
of `apply_gradients` -> `_aggregate_gradients`, unless the flag is off ->
`_transform_gradients` (the clips, then the transformers) -> `_resource_apply_dense` or
`_resource_apply_sparse_duplicate_indices` on every copy of the variable.
"""

from __future__ import annotations

import inspect
from typing import Any

import tensorflow as tf

from distbench.errors import BadInputError
from distbench.trace import Phase
from distbench.worker.intercept import call_converted, intercept
from distbench.worker.state import VariableTable
from distbench.worker.taps import TapBoard

BASES = {
    "tf_keras.src.optimizers.legacy.optimizer_v2.OptimizerV2": (
        "tf_keras.optimizers.legacy.Optimizer"
    ),
    # TensorFlow still carries the copy of Keras that this class comes from.
    "tensorflow.python.keras.optimizer_v2.optimizer_v2.OptimizerV2": (
        "tensorflow.python.keras.optimizer_v2.OptimizerV2"
    ),
}
"""The base classes by their true names, with the names that users know."""

CONTROLS = dict(
    zip(BASES, ("make_legacy_sgd", "make_sgd_inside_tensorflow"), strict=True)
)
"""The stock optimizer of each, a function of `distbench.worker.controls`."""
_FLAG = "experimental_aggregate_gradients"


def install(optimizer: Any, board: TapBoard, table: VariableTable) -> None:
    """Put taps on an instance; every method still does what it did."""
    taps = _LegacyTaps(board, table)
    intercept(optimizer, "apply_gradients", taps.apply_gradients)
    intercept(optimizer, "_aggregate_gradients", taps.aggregate_gradients)
    intercept(optimizer, "_transform_gradients", taps.transform_gradients)
    intercept(optimizer, "_resource_apply_dense", taps.apply_dense)
    intercept(optimizer, "_resource_apply_sparse_duplicate_indices", taps.apply_sparse)
    intercept(optimizer, "_resource_apply_sparse", taps.apply_sparse)


class _LegacyTaps:
    """What stands in front of each method."""

    def __init__(self, board: TapBoard, table: VariableTable) -> None:
        self._board = board
        self._table = table

    def apply_gradients(self, original: Any, pairs: Any, *args: Any, **kw: Any) -> Any:
        # The argument is often a `zip`, which can be read once.
        pairs = list(pairs)
        with self._board.enter_call() as outermost:
            if outermost:
                self._tap_local(
                    pairs, handed=_is_aggregating(original, pairs, args, kw)
                )
            return call_converted(original, pairs, *args, **kw)

    def aggregate_gradients(self, original: Any, pairs: Any) -> Any:
        # A loss scale sums by itself, and goes on only if all is finite.
        with self._board.enter_once("reduced_gradient") as outermost:
            reduced = original(pairs)
            return (
                self._tap_pairs("reduced_gradient", reduced) if outermost else reduced
            )

    def transform_gradients(self, original: Any, pairs: Any) -> Any:
        with self._board.enter_once("reduced_gradient") as outermost:
            if outermost:
                pairs = self._tap_pairs("reduced_gradient", pairs)
            return original(pairs)

    def apply_dense(
        self, original: Any, grad: Any, handle: Any, *a: Any, **k: Any
    ) -> Any:
        with self._board.enter_once("applied_gradient") as outermost:
            if outermost:
                path = self._table.find_path(handle)
                grad = self._board.tap("applied_gradient", path, grad)
                # What a cluster made sparse can be fed to a device that had it dense.
                grad = tf.convert_to_tensor(grad)
            return original(grad, handle, *a, **k)

    def apply_sparse(
        self, original: Any, grad: Any, handle: Any, indices: Any, *a: Any, **k: Any
    ) -> Any:
        with self._board.enter_once("applied_gradient") as outermost:
            if outermost:
                path = self._table.find_path(handle)
                slices = self._table.make_slices(handle, grad, indices)
                slices = self._board.tap("applied_gradient", path, slices)
                if not isinstance(slices, tf.IndexedSlices):
                    # A cluster that made it dense: then every row is a slice.
                    rows = tf.range(handle.shape[0], dtype=indices.dtype)
                    slices = tf.IndexedSlices(slices, rows)
                grad, indices = slices.values, slices.indices
            return original(grad, handle, indices, *a, **k)

    def _tap_pairs(self, phase: Phase, pairs: Any) -> list[tuple[Any, Any]]:
        return [
            (self._board.tap(phase, self._table.find_path(v), g), v)
            if g is not None
            else (g, v)
            for g, v in pairs
        ]

    def _tap_local(self, pairs: Any, *, handed: bool) -> None:
        """Record what the replica itself computed.

        That is what its tape gave: the user may have clipped or reduced it since, and
        then the argument is no local gradient any more. Where no tape tells, it is the
        argument, if the optimizer is asked to aggregate it.

        Raises:
            BadInputError: A variable is given twice: its two gradients and updates
                cannot be told apart by its name.
        """
        seen: set[str] = set()
        for argument, variable in pairs:
            path = self._table.find_path(variable)
            if path in seen:
                raise BadInputError(
                    f"The optimizer is given '{path}' twice in one call. Expected: "
                    "each variable once. Add up its gradients, or list it once."
                )
            seen.add(path)
            local = self._board.recall_gradient(path)
            if local is None and handed:
                local = argument
            if local is not None:
                self._board.tap("local_gradient", path, local)


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
