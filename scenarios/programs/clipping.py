"""The three clips of a legacy optimizer, together and where they are refused."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras
from regression import Regression

legacy = tf_keras.optimizers.legacy


class ValueThenNorm(Regression):
    """Two clips at once: each element of the sum, then the norm of what is left."""

    def make_optimizer(self) -> Any:
        return legacy.SGD(0.05, momentum=0.9, clipvalue=0.5, clipnorm=0.8)


class ValueBeforeTheSum(Regression):
    """Each replica's elements are clipped, and the norm of the sum."""

    def make_optimizer(self) -> Any:
        return legacy.SGD(0.05, momentum=0.9, clipnorm=0.8)

    def apply(self, pairs: list[tuple[Any, Any]]) -> None:
        super().apply([(tf.clip_by_value(g, -0.1, 0.1), v) for g, v in pairs])


class ClipBesideTransformer(Regression):
    """A clip is refused where transformers are given, which could do it themselves."""

    def make_optimizer(self) -> Any:
        return legacy.SGD(0.05, clipnorm=0.8, gradient_transformers=[list])


class TwoNorms(Regression):
    """The norm of each gradient and that of all together exclude each other."""

    def make_optimizer(self) -> Any:
        return legacy.SGD(0.05, clipnorm=0.8, global_clipnorm=0.8)
