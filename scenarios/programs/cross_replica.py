"""`apply_gradients` called where there is no single replica."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from regression import Regression, count_replicas


class AppliedInMergeCall(Regression):
    """The replicas are merged first, and the gradients applied in their place."""

    def apply(self, pairs: list[tuple[Any, Any]]) -> None:
        if count_replicas() == 1:
            super().apply(pairs)
            return
        gradients, variables = zip(*pairs, strict=True)
        tf.distribute.get_replica_context().merge_call(
            lambda _, gradients: self._optimizer.apply_gradients(
                zip(gradients, variables, strict=True)
            ),
            args=(gradients,),
        )


class AppliedBetweenSteps(Regression):
    """Gradients of a penalty are applied between two steps, outside of any replica."""

    def before_step(self, step: int) -> None:
        if step == 1 and count_replicas() > 1:
            self._optimizer.apply_gradients([(tf.ones_like(self.bias), self.bias)])
