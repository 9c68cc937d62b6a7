"""`keras.optimizers.Optimizer`, Keras 3 on TensorFlow.

Order of its phases (keras/src/optimizers/base_optimizer.py and
keras/src/backend/tensorflow/optimizer.py, 3.15): the argument of `apply` -> division by
`loss_scale_factor` -> accumulation -> `_clip_gradients` -> weight decay ->
`_all_reduce_sum_gradients` -> `update_step` on every copy of the variable. It sums what
it has clipped, and no option turns the sum off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distbench.worker.families import keras2
from distbench.worker.families.family import Family, Pairs
from distbench.worker.families.gradients import GradientTaps
from distbench.worker.process.intercept import Undo, call_converted, intercept
from distbench.worker.state.ancestry import list_ancestry
from distbench.worker.state.variables import VariableTable
from distbench.worker.taps.board import TapBoard

_BASE = "keras.src.optimizers.optimizer.Optimizer"


def install(optimizer: Any, board: TapBoard, table: VariableTable) -> list[Undo]:
    """Put taps on an instance; every method still does what it did."""
    taps = _Keras3Taps(board, table, optimizer)
    return [
        # `apply_gradients` does nothing but call it.
        intercept(optimizer, "apply", taps.apply),
        intercept(optimizer, "_all_reduce_sum_gradients", taps.sum_gradients),
        intercept(optimizer, "update_step", taps.update_step),
    ]


def hand_over(optimizer: Any, pairs: Pairs, *, aggregate: bool = True) -> None:
    """See `HandOver`."""
    if not aggregate:
        raise ValueError("optimizers of Keras 3 always sum over replicas")
    optimizer.apply_gradients(pairs)


def build(optimizer: Any, variables: Sequence[Any]) -> None:
    """Make the slots as `fit` does, before the first step.

    A rule may tell layers apart by the paths of its variables, which those of
    TensorFlow lack; they get one that leaves the names of slots as they are.
    """
    for variable in variables:
        if not hasattr(variable, "path"):
            variable.path = variable.name.replace("/", "_").replace(":", "_")
    optimizer.build(list(variables))


def find_counter(optimizer: Any) -> Any:
    """The counter itself: `iterations` may be a quotient of it."""
    inner = getattr(optimizer, "inner_optimizer", None)
    # A user's own may keep something else by that name.
    while _BASE in list_ancestry(inner):
        optimizer, inner = inner, getattr(inner, "inner_optimizer", None)
    return optimizer._iterations


FAMILY = Family(
    bases={_BASE: "keras.optimizers.Optimizer"},
    controls={_BASE: "make_keras3_sgd"},
    install=install,
    hand_over=hand_over,
    paths=("default", "clipvalue", "clipnorm", "global-clipnorm"),
    options=(
        *keras2.FAMILY.options,
        "loss_scale_factor",
        "gradient_accumulation_steps",
    ),
    build=build,
    find_counter=find_counter,
)


class _Keras3Taps(GradientTaps):
    """What stands in front of each method."""

    def __init__(self, board: TapBoard, table: VariableTable, optimizer: Any) -> None:
        super().__init__(board, table)
        self._optimizer = optimizer

    def apply(
        self,
        original: Any,
        grads: Any,
        trainable_variables: Any = None,
        *args: Any,
        **kw: Any,
    ) -> Any:
        # The argument may be a generator, which can be read once.
        grads = list(grads)
        variables = trainable_variables
        if variables is not None:
            trainable_variables = variables = list(variables)
        elif self._optimizer.built:
            variables = self._optimizer._trainable_variables
        with self._board.enter_call() as outermost:
            if outermost and variables is not None:
                pairs = list(zip(grads, variables, strict=False))
                self.tap_local(pairs, handed=True)
                self.note_updated(original, pairs)
            return call_converted(original, grads, trainable_variables, *args, **kw)

    def sum_gradients(self, original: Any, *args: Any, **kw: Any) -> Any:
        return self.tap_reduced(original(*args, **kw))
