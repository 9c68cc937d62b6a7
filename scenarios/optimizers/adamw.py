"""AdamW: Adam with decoupled weight decay, built on a stock optimizer.

    var <- var - lr * weight_decay * var
    var <- Adam(var, g)

Source: I. Loshchilov, F. Hutter, "Decoupled Weight Decay Regularization", ICLR 2019,
https://arxiv.org/abs/1711.05101, algorithm 2. As in Keras' own AdamW, lr is its
schedule multiplier and base rate in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras


class AdamW(tf_keras.optimizers.legacy.Adam):
    """Extends Keras' Adam by overriding the two update rules.

    Overriding them, and not `apply_gradients`, is what makes it right under every
    strategy: they run once for each copy of a variable, on the device that holds it.

    Args:
        weight_decay: Coefficient of the decay, before it is multiplied by lr.
        exclude: Parts of names; variables whose name has one do not decay.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        weight_decay: Any = 0.004,
        exclude: Sequence[str] = (),
        name: str = "AdamW",
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, name=name, **kwargs)
        self._set_hyper("weight_decay", weight_decay)
        self._exclude = tuple(exclude)

    def _prepare_local(self, var_device: Any, var_dtype: Any, apply_state: Any) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        apply_state[var_device, var_dtype]["weight_decay"] = tf.identity(
            self._get_hyper("weight_decay", var_dtype)
        )

    def _resource_apply_dense(
        self, grad: tf.Tensor, var: tf.Variable, apply_state: Any = None
    ) -> tf.Operation:
        with tf.control_dependencies([self._decay(var, apply_state)]):
            return super()._resource_apply_dense(grad, var, apply_state)

    def _resource_apply_sparse(
        self,
        grad: tf.Tensor,
        var: tf.Variable,
        indices: tf.Tensor,
        apply_state: Any = None,
    ) -> tf.Operation:
        """Decays every row, so that a sparse gradient does what a dense one does."""
        with tf.control_dependencies([self._decay(var, apply_state)]):
            return super()._resource_apply_sparse(grad, var, indices, apply_state)

    def _decay(self, var: tf.Variable, apply_state: Any) -> tf.Operation:
        if any(part in var.name for part in self._exclude):
            return tf.no_op()
        key = (var.device, var.dtype.base_dtype)
        state = (apply_state or {}).get(key) or self._fallback_apply_state(*key)
        return var.assign_sub(
            state["lr_t"] * state["weight_decay"] * var, use_locking=self._use_locking
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "weight_decay": self._serialize_hyperparameter("weight_decay"),
            "exclude": list(self._exclude),
        }


def make_adamw() -> AdamW:
    return AdamW(0.01, weight_decay=0.1, exclude=["bias"])
