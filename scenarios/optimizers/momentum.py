"""Heavy-ball momentum with one slot.

    velocity <- momentum * velocity - lr * g
    var      <- var + velocity

A sparse gradient is a dense one that is 0 elsewhere: every row's velocity decays and
moves its row, whether or not the gradient names it. (Keras' own SGD with momentum is
lazy: there, rows that the gradient does not name stand still.)

Source: I. Sutskever et al., "On the importance of initialization and momentum in deep
learning", ICML 2013, eqs. 1-2, https://proceedings.mlr.press/v28/sutskever13.html.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras


class Momentum(tf_keras.optimizers.legacy.Optimizer):
    """A rule in plain TensorFlow ops, which is how most custom rules begin.

    Under parameter servers with several steps in flight two workers can come between
    the two assignments; a fused kernel would hold the variable's lock over both.
    """

    _HAS_AGGREGATE_GRAD = True

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: Any = 0.9,
        name: str = "Momentum",
        **kwargs: Any,
    ) -> None:
        super().__init__(name, **kwargs)
        self._set_hyper("learning_rate", learning_rate)
        self._set_hyper("decay", self._initial_decay)
        self._set_hyper("momentum", momentum)

    def _create_slots(self, var_list: list[tf.Variable]) -> None:
        for var in var_list:
            self.add_slot(var, "velocity")

    def _prepare_local(self, var_device: Any, var_dtype: Any, apply_state: Any) -> None:
        """Read hyperparameters once per device and dtype, not once per variable."""
        super()._prepare_local(var_device, var_dtype, apply_state)
        apply_state[var_device, var_dtype]["momentum"] = tf.identity(
            self._get_hyper("momentum", var_dtype)
        )

    def _resource_apply_dense(
        self, grad: tf.Tensor, var: tf.Variable, apply_state: Any = None
    ) -> tf.Operation:
        state = self._find_state(var, apply_state)
        velocity = self.get_slot(var, "velocity")
        step = state["momentum"] * velocity - state["lr_t"] * grad
        return tf.group(
            velocity.assign(step, use_locking=self._use_locking),
            var.assign_add(step, use_locking=self._use_locking),
        )

    def _resource_apply_sparse(
        self,
        grad: tf.Tensor,
        var: tf.Variable,
        indices: tf.Tensor,
        apply_state: Any = None,
    ) -> tf.Operation:
        state = self._find_state(var, apply_state)
        velocity = self.get_slot(var, "velocity")
        decayed = state["momentum"] * velocity
        step = tf.tensor_scatter_nd_sub(
            decayed, indices[:, tf.newaxis], state["lr_t"] * grad
        )
        return tf.group(
            velocity.assign(step, use_locking=self._use_locking),
            var.assign_add(step, use_locking=self._use_locking),
        )

    def _find_state(self, var: tf.Variable, apply_state: Any) -> dict[str, tf.Tensor]:
        key = (var.device, var.dtype.base_dtype)
        return (apply_state or {}).get(key) or self._fallback_apply_state(*key)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "learning_rate": self._serialize_hyperparameter("learning_rate"),
            "decay": self._initial_decay,
            "momentum": self._serialize_hyperparameter("momentum"),
        }


def make_momentum() -> Momentum:
    return Momentum(0.1, momentum=0.9)
