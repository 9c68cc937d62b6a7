"""Gradient descent that keeps a moving average of the weights.

    var     <- var - lr * g
    average <- average - (1 - average_decay) * (average - var),  average_0 = var_0

Source: B. Polyak, A. Juditsky, "Acceleration of Stochastic Approximation by
Averaging", SIAM J. Control Optim. 30 (1992), https://doi.org/10.1137/0330046, with
exponential weights as in https://www.tensorflow.org/api_docs/python/tf/train/ExponentialMovingAverage.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf
import tf_keras


class AveragedSGD(tf_keras.optimizers.legacy.SGD):
    """Overrides `apply_gradients`, since the average needs the finished variable.

    Inside `_resource_apply_dense` it would miss the constraint, which the base class
    applies afterwards.
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        average_decay: Any = 0.99,
        name: str = "AveragedSGD",
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, name=name, **kwargs)
        self._set_hyper("average_decay", average_decay)

    def _create_slots(self, var_list: list[tf.Variable]) -> None:
        super()._create_slots(var_list)
        for var in var_list:
            self.add_slot(var, "average", initializer=_make_copy_initializer(var))

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, tf.Variable]],
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
    ) -> tf.Operation:
        """Update the variables, then their averages.

        It is called in replica context, once for each replica. The average is an
        update of its own of a synchronised variable, so it goes through
        `extended.update`, which runs once for each copy: assigning in replica context
        would aggregate over the replicas, and a plain loop over the copies is not
        possible there.
        """
        grads_and_vars = tuple(grads_and_vars)
        updated = super().apply_gradients(
            grads_and_vars,
            name=name,
            experimental_aggregate_gradients=experimental_aggregate_gradients,
        )
        variables = [var for grad, var in grads_and_vars if grad is not None]
        if not variables:
            return updated
        with tf.control_dependencies([updated]):
            # `merge_call`, or a direct call where a strategy has none.
            return tf.__internal__.distribute.interim.maybe_merge_call(
                self._update_averages, tf.distribute.get_strategy(), variables
            )

    def _update_averages(
        self, strategy: tf.distribute.Strategy, variables: list[tf.Variable]
    ) -> tf.Operation:
        updates = [
            strategy.extended.update(var, self._update_average, group=True)
            for var in variables
        ]
        return tf.group(*updates)

    def _update_average(self, var: tf.Variable) -> tf.Operation:
        average = self.get_slot(var, "average")
        rate = 1 - self._get_hyper("average_decay", var.dtype.base_dtype)
        return average.assign_sub(rate * (average - var), use_locking=self._use_locking)

    def assign_averages(self, variables: Iterable[tf.Variable]) -> None:
        """Put the averages in the variables' place, to evaluate or export them.

        Call it outside `strategy.run`.
        """
        for var in variables:
            var.assign(self.get_slot(var, "average"))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "average_decay": self._serialize_hyperparameter("average_decay"),
        }


def _make_copy_initializer(var: tf.Variable) -> Any:
    """An initializer of the base class' kind that starts from the variable's value."""

    def initialize(shape: Any = None, dtype: Any = None, **_: Any) -> tf.Tensor:
        del shape  # the variable's own
        return tf.cast(var.read_value(), dtype)

    return initialize


def make_averaged_sgd() -> AveragedSGD:
    return AveragedSGD(0.1, average_decay=0.9)
