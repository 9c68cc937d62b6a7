"""Adam whose slots move only where a sparse gradient has a row.

For each row r that the gradient names, with g_r the sum of its occurrences:

    m_r   <- beta_1 * m_r + (1 - beta_1) * g_r
    v_r   <- beta_2 * v_r + (1 - beta_2) * g_r²
    var_r <- var_r - lr_t * m_r / (sqrt(v_r) + epsilon)

with lr_t = lr * sqrt(1 - beta_2^t) / (1 - beta_1^t) and t = iterations + 1. Other
rows and their slots stay as they are, where Adam would go on moving them. A dense
gradient is Adam's.

Source: `LazyAdam` of TensorFlow Addons,
https://github.com/tensorflow/addons/blob/v0.23.0/tensorflow_addons/optimizers/lazy_adam.py.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras


class LazyAdam(tf_keras.optimizers.legacy.Adam):
    """Overrides nothing but the sparse rule of Keras' Adam."""

    def __init__(
        self, learning_rate: Any = 0.001, name: str = "LazyAdam", **kwargs: Any
    ) -> None:
        super().__init__(learning_rate, name=name, **kwargs)
        if self.amsgrad:
            raise ValueError(
                "LazyAdam has no amsgrad form. Received: amsgrad=True. "
                "Use tf_keras.optimizers.legacy.Adam(amsgrad=True)."
            )

    def _resource_apply_sparse(
        self,
        grad: tf.Tensor,
        var: tf.Variable,
        indices: tf.Tensor,
        apply_state: Any = None,
    ) -> tf.Operation:
        """Writes rows with `scatter_update`, so each row may come only once.

        The base class' `_resource_apply_sparse_duplicate_indices` has added up
        repeated rows before it calls this. Without that, of a row that occurs twice
        one occurrence would be lost.
        """
        key = (var.device, var.dtype.base_dtype)
        state = (apply_state or {}).get(key) or self._fallback_apply_state(*key)
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        new_m = (
            state["beta_1_t"] * tf.gather(m, indices)
            + state["one_minus_beta_1_t"] * grad
        )
        new_v = state["beta_2_t"] * tf.gather(v, indices) + state[
            "one_minus_beta_2_t"
        ] * tf.square(grad)
        step = state["lr"] * new_m / (tf.sqrt(new_v) + state["epsilon"])
        return tf.group(
            tf.raw_ops.ResourceScatterUpdate(
                resource=m.handle, indices=indices, updates=new_m
            ),
            tf.raw_ops.ResourceScatterUpdate(
                resource=v.handle, indices=indices, updates=new_v
            ),
            tf.raw_ops.ResourceScatterSub(
                resource=var.handle, indices=indices, updates=step
            ),
        )


def make_lazy_adam() -> LazyAdam:
    return LazyAdam(0.01)
