"""An optimizer whose rule is handed two tensors in one, made of the sum."""

from __future__ import annotations

from typing import Any

from distbench.samples.lazy import tf
from distbench.samples.replicas import make_zeros


class StackedWithLast:
    """A step along the sum and what it has changed by; `keras2.SGD` is its base.

    var <- var - rate (g + (g - g of the step before) / 2)
    """

    _last = None

    def apply_gradients(
        self,
        grads_and_vars: Any,
        name: Any = None,
        skip_gradients_aggregation: bool = False,
        **options: Any,
    ) -> Any:
        """Sum, and hand each sum to the rule on top of the last one."""
        pairs = list(grads_and_vars)
        if self._last is None:
            with tf.init_scope():
                self._last = make_zeros((v for _, v in pairs), "last", "MEAN")
        if not skip_gradients_aggregation:
            pairs = self.aggregate_gradients(pairs)  # type: ignore[attr-defined]  # of the base
        stacked = []
        for (gradient, variable), last in zip(pairs, self._last, strict=True):
            given = tf.convert_to_tensor(gradient)
            stacked.append((tf.stack([given, last]), variable))
            last.assign(given)
        return super().apply_gradients(  # type: ignore[misc]
            stacked, name=name, skip_gradients_aggregation=True, **options
        )

    def update_step(self, gradient: Any, variable: Any) -> None:
        """Change one copy of a variable."""
        now, last = tf.unstack(gradient)
        variable.assign_sub(self.learning_rate * (1.5 * now - 0.5 * last))  # type: ignore[attr-defined]
