"""Optimizers from PyPI with one bug planted by hand, to see the bench find it.

Three bugs, each of which trains happily: a loss divided by the replica's own number of
examples, a `gradient_aggregator` that sums nothing, and a slot fed with the gradient
from before the sum. The optimizers are those of the modules beside this one, in the
same environments; only the bugs are ours.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import from_keras_adamw
import from_larq
import from_tf_models
import from_transformers
import numpy as np
import tensorflow as tf

Rate = Callable[[Any, Any], Any]


class LocalMeanProgram:
    """A regression whose loss is the mean over the replica's own examples.

    The replicas' gradients are summed: with N even shards the sum is N times too large.
    """

    loss_reduction = "sum"
    make_optimizer: Callable[[], Any]

    def build(self, strategy: Any) -> None:  # noqa: ARG002  # the contract
        rng = np.random.default_rng(0)
        kernel = rng.normal(size=(4, 3)).astype("float32")
        self._kernel = tf.Variable(kernel, name="kernel")
        self._bias = tf.Variable(np.ones(3, "float32"), name="bias")
        self._optimizer = type(self).make_optimizer()

    def variables(self) -> list[Any]:
        return [self._kernel, self._bias]

    def optimizer(self) -> Any:
        return self._optimizer

    def data(self, step: int) -> tuple[Any, Any]:
        rng = np.random.default_rng(step + 1)
        features = rng.normal(size=(16, 4)).astype("float32")
        return features, rng.normal(size=(16, 3)).astype("float32")

    def replica_step(self, batch: tuple[Any, Any]) -> Any:
        features, targets = batch
        with tf.GradientTape() as tape:
            outputs = features @ self._kernel + self._bias
            loss = tf.reduce_mean(tf.reduce_sum((outputs - targets) ** 2, axis=1))
        gradients = tape.gradient(loss, self.variables())
        self._optimizer.apply_gradients(zip(gradients, self.variables(), strict=True))
        return loss


def leave_unreduced(pairs: Any) -> Any:
    """A `gradient_aggregator` that aggregates nothing."""
    return pairs


def feed_slot_locally(base: type, rate: Rate) -> type:
    """A subclass whose slot `m` averages the gradient from before the reduction.

    The rule of the base runs on the right gradient; afterwards its share in `m` is
    exchanged for that of the replica's own gradient.

    Args:
        base: An optimizer with `m += rate · (gradient - m)`.
        rate: Gives that rate, from the optimizer and a dtype.
    """
    takes_state = (
        "apply_state" in inspect.signature(base._resource_apply_dense).parameters
    )

    class FedLocally(base):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._own_gradients: dict[Any, Any] = {}

        def _aggregate_gradients(self, grads_and_vars: Any) -> Any:
            pairs = list(grads_and_vars)
            for gradient, variable in pairs:
                self._own_gradients[_find_copy(variable).ref()] = gradient
            return super()._aggregate_gradients(pairs)

        def _resource_apply_dense(
            self, grad: Any, var: Any, apply_state: Any = None
        ) -> Any:
            options = {"apply_state": apply_state} if takes_state else {}
            done = super()._resource_apply_dense(grad, var, **options)
            with tf.control_dependencies([done]):
                change = self._own_gradients[var.ref()] - grad
                m = self.get_slot(var, "m")
                return m.assign_add(rate(self, var.dtype.base_dtype) * change)

    FedLocally.__name__ = f"{base.__name__}FedLocally"
    return FedLocally


def _find_copy(variable: Any) -> Any:
    """This replica's copy of a variable; the update is called with the same object."""
    copies = tf.distribute.get_strategy().experimental_local_results(variable)
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    return copies[int(tf.get_static_value(replica)) % len(copies)]


def _rate_of_adam(optimizer: Any, dtype: Any) -> Any:
    return 1 - optimizer._get_hyper("beta_1", dtype)


def _rate_of_bop(optimizer: Any, dtype: Any) -> Any:
    return optimizer._get_hyper("gamma", dtype)


class KerasAdamwLocalMean(LocalMeanProgram):
    make_optimizer = from_keras_adamw.make_adamw


class LarqLocalMean(LocalMeanProgram):
    make_optimizer = from_larq.make_bop


class TfModelsLocalMean(LocalMeanProgram):
    make_optimizer = from_tf_models.make_adamw_without_clipping


class TransformersLocalMean(LocalMeanProgram):
    make_optimizer = from_transformers.make_adamw


def make_keras_adamw_unreduced() -> Any:
    return from_keras_adamw.make_adamw(gradient_aggregator=leave_unreduced)


def make_larq_unreduced() -> Any:
    return from_larq.make_bop(gradient_aggregator=leave_unreduced)


def make_tf_models_unreduced() -> Any:
    return from_tf_models.make_adamw_without_clipping(
        gradient_aggregator=leave_unreduced
    )


def make_transformers_unreduced() -> Any:
    return from_transformers.make_adamw(gradient_aggregator=leave_unreduced)


def make_keras_adamw_fed_locally() -> Any:
    base = type(from_keras_adamw.make_adamw())
    return feed_slot_locally(base, _rate_of_adam)(learning_rate=0.01)


def make_larq_fed_locally() -> Any:
    base = type(from_larq.make_bop())
    return feed_slot_locally(base, _rate_of_bop)(threshold=1e-6, gamma=0.1)


def make_tf_models_fed_locally() -> Any:
    base = type(from_tf_models.make_adamw())
    optimizer = feed_slot_locally(base, _rate_of_adam)
    return optimizer(0.01, weight_decay_rate=0.01, gradient_clip_norm=0.0)


def make_transformers_fed_locally() -> Any:
    base = type(from_transformers.make_adamw())
    return feed_slot_locally(base, _rate_of_adam)(0.01, weight_decay_rate=0.01)
