"""Adam with two slots.

    m   <- beta_1 * m + (1 - beta_1) * g
    v   <- beta_2 * v + (1 - beta_2) * g²
    var <- var - lr * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon)

with t = iterations + 1. A sparse gradient is a dense one that is 0 elsewhere.

Source: D. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015,
https://arxiv.org/abs/1412.6980, the form just before its section 2.1 (epsilon is what
the paper calls epsilon hat).
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras


class Adam(tf_keras.optimizers.legacy.Optimizer):
    """Two slots, and a step size that depends on `iterations`."""

    _HAS_AGGREGATE_GRAD = True

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        epsilon: float = 1e-7,
        name: str = "Adam",
        **kwargs: Any,
    ) -> None:
        super().__init__(name, **kwargs)
        self._set_hyper("learning_rate", learning_rate)
        self._set_hyper("decay", self._initial_decay)
        self._set_hyper("beta_1", beta_1)
        self._set_hyper("beta_2", beta_2)
        self.epsilon = epsilon

    def _create_slots(self, var_list: list[tf.Variable]) -> None:
        # All m before all v, so that `get_weights` has the order of Keras' own Adam.
        for var in var_list:
            self.add_slot(var, "m")
        for var in var_list:
            self.add_slot(var, "v")

    def _prepare_local(self, var_device: Any, var_dtype: Any, apply_state: Any) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        state = apply_state[var_device, var_dtype]
        # `iterations` advances after the last variable of the step was updated.
        step = tf.cast(self.iterations + 1, var_dtype)
        beta_1 = tf.identity(self._get_hyper("beta_1", var_dtype))
        beta_2 = tf.identity(self._get_hyper("beta_2", var_dtype))
        correction = tf.sqrt(1 - tf.pow(beta_2, step)) / (1 - tf.pow(beta_1, step))
        state.update(
            beta_1=beta_1,
            beta_2=beta_2,
            alpha=state["lr_t"] * correction,
            epsilon=tf.convert_to_tensor(self.epsilon, var_dtype),
        )

    def _resource_apply_dense(
        self, grad: tf.Tensor, var: tf.Variable, apply_state: Any = None
    ) -> tf.Operation:
        state = self._find_state(var, apply_state)
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        return self._assign(
            var,
            state,
            m * state["beta_1"] + grad * (1 - state["beta_1"]),
            v * state["beta_2"] + tf.square(grad) * (1 - state["beta_2"]),
        )

    def _resource_apply_sparse(
        self,
        grad: tf.Tensor,
        var: tf.Variable,
        indices: tf.Tensor,
        apply_state: Any = None,
    ) -> tf.Operation:
        """Squares each row's whole gradient: the rows come de-duplicated.

        The sum of the squares of repeated rows would not be the square of their sum.
        """
        state = self._find_state(var, apply_state)
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        rows = indices[:, tf.newaxis]
        return self._assign(
            var,
            state,
            tf.tensor_scatter_nd_add(
                m * state["beta_1"], rows, grad * (1 - state["beta_1"])
            ),
            tf.tensor_scatter_nd_add(
                v * state["beta_2"], rows, tf.square(grad) * (1 - state["beta_2"])
            ),
        )

    def _assign(
        self, var: tf.Variable, state: Any, new_m: tf.Tensor, new_v: tf.Tensor
    ) -> tf.Operation:
        step = state["alpha"] * new_m / (tf.sqrt(new_v) + state["epsilon"])
        return tf.group(
            self.get_slot(var, "m").assign(new_m, use_locking=self._use_locking),
            self.get_slot(var, "v").assign(new_v, use_locking=self._use_locking),
            var.assign_sub(step, use_locking=self._use_locking),
        )

    def _find_state(self, var: tf.Variable, apply_state: Any) -> dict[str, tf.Tensor]:
        key = (var.device, var.dtype.base_dtype)
        return (apply_state or {}).get(key) or self._fallback_apply_state(*key)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "learning_rate": self._serialize_hyperparameter("learning_rate"),
            "decay": self._initial_decay,
            "beta_1": self._serialize_hyperparameter("beta_1"),
            "beta_2": self._serialize_hyperparameter("beta_2"),
            "epsilon": self.epsilon,
        }


def make_adam() -> Adam:
    return Adam(0.01)
