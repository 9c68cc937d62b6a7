"""A `gradient_aggregator` and `gradient_transformers` in one legacy optimizer."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras
from regression import Regression, all_reduce


def sum_gradients(pairs: Any) -> list[tuple[Any, Any]]:
    return all_reduce("sum", pairs)


def clip_gradients(pairs: Any) -> list[tuple[Any, Any]]:
    gradients, variables = zip(*pairs, strict=True)
    clipped, _ = tf.clip_by_global_norm(gradients, 0.5)
    return list(zip(clipped, variables, strict=True))


class SumsThenClips(Regression):
    """The aggregator sums, and what transforms comes after it."""

    def make_optimizer(self) -> Any:
        return tf_keras.optimizers.legacy.SGD(
            0.05,
            momentum=0.9,
            gradient_aggregator=sum_gradients,
            gradient_transformers=[clip_gradients],
        )


class SumsInATransformer(Regression):
    """Transformers run with the flag off too, so one of them can sum."""

    def make_optimizer(self) -> Any:
        return tf_keras.optimizers.legacy.SGD(
            0.05, momentum=0.9, gradient_transformers=[sum_gradients, clip_gradients]
        )

    def apply(self, pairs: list[tuple[Any, Any]]) -> None:
        self._optimizer.apply_gradients(pairs, experimental_aggregate_gradients=False)


class AggregatorSwitchedOff(SumsThenClips):
    """The flag that turns the default sum off turns the user's aggregator off too."""

    def apply(self, pairs: list[tuple[Any, Any]]) -> None:
        self._optimizer.apply_gradients(pairs, experimental_aggregate_gradients=False)


class TransformerSumsAgain(Regression):
    """The optimizer has summed before its transformers run."""

    def make_optimizer(self) -> Any:
        return tf_keras.optimizers.legacy.SGD(
            0.05, momentum=0.9, gradient_transformers=[sum_gradients]
        )
