"""An optimizer that divides its step by a running norm of the gradients."""

from __future__ import annotations

from typing import Any

from distbench.samples.lazy import tf


class TracksTheNorm:
    """The norm is that of what it is given; `legacy.SGD` is its base."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.running = tf.Variable(
            1.0,
            trainable=False,
            aggregation=tf.VariableAggregation.MEAN,
            name="running",
        )

    def apply_gradients(
        self, grads_and_vars: Any, name: Any = None, **kwargs: Any
    ) -> Any:
        """Keep the norm, then go on as ever."""
        pairs = list(grads_and_vars)
        norm = self.measure([gradient for gradient, _ in pairs])
        self.running.assign(0.9 * self.running + 0.1 * norm)
        return super().apply_gradients(pairs, name, **kwargs)  # type: ignore[misc]  # of the base

    def measure(self, gradients: list[Any]) -> Any:
        """The norm of some gradients."""
        return tf.linalg.global_norm(gradients)

    def _resource_apply_dense(
        self, grad: Any, var: Any, apply_state: Any = None
    ) -> Any:
        return super()._resource_apply_dense(  # type: ignore[misc]  # of the base
            grad / self.running, var, apply_state
        )

    def _resource_apply_sparse(
        self, grad: Any, var: Any, indices: Any, apply_state: Any = None
    ) -> Any:
        return super()._resource_apply_sparse(  # type: ignore[misc]  # of the base
            grad / self.running, var, indices, apply_state
        )
