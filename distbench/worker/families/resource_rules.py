"""Update rules in methods named `_resource_apply_*`: OptimizerV2 and TensorFlow 1."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from distbench.trace import Phase
from distbench.worker.families.gradients import GradientTaps
from distbench.worker.process.intercept import Undo, intercept


class ResourceRuleTaps(GradientTaps):
    """Taps on what the rules are given.

    Attributes:
        phases: What a rule's argument is: the applied gradient, and in a family that
            hands over the sums as they are, the reduced one too.
    """

    phases: tuple[Phase, ...] = ("applied_gradient",)

    def intercept_rules(self, optimizer: Any) -> list[Undo]:
        """Stand in front of the three methods that can be called first."""
        duplicate = "_resource_apply_sparse_duplicate_indices"
        return [
            intercept(optimizer, "_resource_apply_dense", self._apply_dense),
            intercept(optimizer, duplicate, self._apply_sparse),
            intercept(optimizer, "_resource_apply_sparse", self._apply_sparse),
        ]

    def _apply_dense(
        self, original: Any, grad: Any, handle: Any, *a: Any, **k: Any
    ) -> Any:
        with self._board.enter_once("applied_gradient") as outermost:
            if outermost:
                # What a cluster made sparse can be fed to a device that had it dense.
                grad = tf.convert_to_tensor(self._tap(handle, grad))
            return original(grad, handle, *a, **k)

    def _apply_sparse(
        self, original: Any, grad: Any, handle: Any, indices: Any, *a: Any, **k: Any
    ) -> Any:
        with self._board.enter_once("applied_gradient") as outermost:
            if outermost:
                # The number of rows is what a sparse value is recorded with.
                shape = tf.constant(handle.shape.as_list(), tf.int64)
                slices = self._tap(handle, tf.IndexedSlices(grad, indices, shape))
                if not isinstance(slices, tf.IndexedSlices):
                    # A cluster that made it dense: then every row is a slice.
                    rows = tf.range(handle.shape[0], dtype=indices.dtype)
                    slices = tf.IndexedSlices(slices, rows)
                grad, indices = slices.values, slices.indices
            return original(grad, handle, indices, *a, **k)

    def _tap(self, handle: Any, gradient: Any) -> Any:
        path = self._table.find_path(handle)
        for phase in self.phases:
            gradient = self._board.tap(phase, path, gradient)
        return gradient
