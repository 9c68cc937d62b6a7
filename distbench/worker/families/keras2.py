"""`tf_keras.optimizers.Optimizer`, the new base class of Keras 2.

Order of its phases (tf_keras/src/optimizers/optimizer.py, 2.21): the argument of
`apply_gradients` -> `aggregate_gradients`, unless either flag is off -> the base's
`apply_gradients` -> `_clip_gradients` -> de-duplication of rows -> weight decay ->
`update_step` on every copy of the variable. It clips what it has summed.
"""

from __future__ import annotations

from typing import Any

from distbench.worker.families.family import Family, Pairs
from distbench.worker.families.gradients import GradientTaps
from distbench.worker.process.intercept import Undo, intercept, intercept_inherited
from distbench.worker.state.ancestry import list_ancestry
from distbench.worker.state.variables import VariableTable
from distbench.worker.taps.board import TapBoard

_BASE = "tf_keras.src.optimizers.optimizer.Optimizer"
_INNER_BASE = "tf_keras.src.optimizers.optimizer._BaseOptimizer"


def install(optimizer: Any, board: TapBoard, table: VariableTable) -> list[Undo]:
    """Put taps on an instance; every method still does what it did."""
    taps = _Keras2Taps(board, table)
    # Every way to the update goes through here, with or without the sum; the methods
    # that it calls before the clip are not told which variable a gradient is for.
    inner = list_ancestry(optimizer)[_INNER_BASE]
    return [
        intercept(optimizer, "apply_gradients", taps.apply_gradients),
        intercept(optimizer, "aggregate_gradients", taps.aggregate_gradients),
        intercept_inherited(optimizer, inner, "apply_gradients", taps.use_gradients),
        # XLA compiles the first of the two, with the other in it.
        intercept(optimizer, "_update_step_xla", taps.update_step),
        intercept(optimizer, "_update_step", taps.update_step),
    ]


def hand_over(optimizer: Any, pairs: Pairs, *, aggregate: bool = True) -> None:
    """See `HandOver`."""
    options = {} if aggregate else {"skip_gradients_aggregation": True}
    optimizer.apply_gradients(pairs, **options)


FAMILY = Family(
    bases={_BASE: "tf_keras.optimizers.Optimizer"},
    controls={_BASE: "make_keras2_sgd"},
    install=install,
    hand_over=hand_over,
    paths=("default", "user", "none", "clipvalue", "clipnorm", "global-clipnorm"),
    options=(
        "clipnorm",
        "clipvalue",
        "global_clipnorm",
        "weight_decay",
        "use_ema",
        "ema_momentum",
        "ema_overwrite_frequency",
    ),
)


class _Keras2Taps(GradientTaps):
    """What stands in front of each method."""

    def aggregate_gradients(self, original: Any, *args: Any, **kw: Any) -> Any:
        # A loss scale sums by itself, and goes on only if all is finite.
        return self.tap_reduced(original(*args, **kw))

    def use_gradients(
        self, original: Any, grads_and_vars: Any, *args: Any, **kw: Any
    ) -> Any:
        return original(self.tap_reduced(grads_and_vars), *args, **kw)
