"""Plain gradient descent through TensorFlow's own kernel.

Dense: var <- var - lr * g. Sparse: the same for the rows that the gradient names.

Source: H. Robbins, S. Monro, "A Stochastic Approximation Method", Ann. Math. Statist.
22 (1951), https://doi.org/10.1214/aoms/1177729586.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras


class GradientDescent(tf_keras.optimizers.legacy.Optimizer):
    """The shortest optimizer there is: one hyperparameter, no slot."""

    # Keras' `fit` hands `experimental_aggregate_gradients` on only if this is set.
    _HAS_AGGREGATE_GRAD = True

    def __init__(
        self,
        learning_rate: Any = 0.01,
        name: str = "GradientDescent",
        **kwargs: Any,
    ) -> None:
        super().__init__(name, **kwargs)
        self._set_hyper("learning_rate", learning_rate)
        # The base class reads it when the caller passes `decay=`.
        self._set_hyper("decay", self._initial_decay)

    def _resource_apply_dense(
        self, grad: tf.Tensor, var: tf.Variable, apply_state: Any = None
    ) -> tf.Operation:
        return tf.raw_ops.ResourceApplyGradientDescent(
            var=var.handle,
            alpha=self._find_state(var, apply_state)["lr_t"],
            delta=grad,
            use_locking=self._use_locking,
        )

    def _resource_apply_sparse(
        self,
        grad: tf.Tensor,
        var: tf.Variable,
        indices: tf.Tensor,
        apply_state: Any = None,
    ) -> tf.Operation:
        """Gets each row once: the base class has added up the repeated ones."""
        return tf.raw_ops.ResourceScatterSub(
            resource=var.handle,
            indices=indices,
            updates=self._find_state(var, apply_state)["lr_t"] * grad,
        )

    def _find_state(self, var: tf.Variable, apply_state: Any) -> dict[str, tf.Tensor]:
        key = (var.device, var.dtype.base_dtype)
        return (apply_state or {}).get(key) or self._fallback_apply_state(*key)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "learning_rate": self._serialize_hyperparameter("learning_rate"),
            "decay": self._initial_decay,
        }


def make_sgd() -> GradientDescent:
    return GradientDescent(0.1)
