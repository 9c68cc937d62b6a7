"""What stands in front of an optimizer's entrance, whatever its family."""

from __future__ import annotations

import inspect
from typing import Any

from distbench.errors import BadInputError
from distbench.worker.families.family import Pairs
from distbench.worker.process.intercept import call_converted
from distbench.worker.state.variables import VariableTable
from distbench.worker.taps.board import TapBoard


class GradientTaps:
    """Taps on pairs of gradient and variable."""

    def __init__(self, board: TapBoard, table: VariableTable) -> None:
        self._board = board
        self._table = table

    def apply_gradients(
        self, original: Any, grads_and_vars: Any, *args: Any, **kw: Any
    ) -> Any:
        """In front of `apply_gradients`: what the replica computed by itself."""
        # The argument is often a `zip`, which can be read once.
        pairs = list(grads_and_vars)
        with self._board.enter_call() as outermost:
            if outermost:
                handed = _is_aggregating(original, pairs, *args, **kw)
                self.tap_local(pairs, handed=handed)
                self.note_updated(original, pairs)
            return call_converted(original, pairs, *args, **kw)

    def note_updated(self, original: Any, pairs: Pairs) -> None:
        """Note what the optimizer of a method is given gradients of."""
        paths = {self._table.find_path(variable) for _, variable in pairs}
        self._board.seen.add_updated(original.__self__, paths)

    def tap_reduced(self, pairs: Any) -> Any:
        """Record and feed the sums over replicas, unless one call up did so."""
        with self._board.enter_once("reduced_gradient") as outermost:
            return self.tap_pairs(pairs) if outermost else pairs

    def update_step(
        self, original: Any, gradient: Any, variable: Any, *args: Any, **kw: Any
    ) -> Any:
        """In front of a rule that is given gradient and variable, on one copy.

        A rule of all variables at once is given lists of them.
        """
        with self._board.enter_once("applied_gradient") as outermost:
            if outermost and isinstance(variable, (list, tuple)):
                gradient = [
                    g if g is None else self._tap_applied(g, v)
                    for g, v in zip(gradient, variable, strict=True)
                ]
            elif outermost:
                gradient = self._tap_applied(gradient, variable)
            return original(gradient, variable, *args, **kw)

    def _tap_applied(self, gradient: Any, variable: Any) -> Any:
        path = self._table.find_path(variable)
        return self._board.tap("applied_gradient", path, gradient)

    def tap_pairs(self, pairs: Any) -> Pairs:
        """Record and feed the reduced gradient of each variable that has one."""
        return [
            (self._board.tap("reduced_gradient", self._table.find_path(v), g), v)
            if g is not None
            else (g, v)
            for g, v in pairs
        ]

    def tap_local(self, pairs: Any, *, handed: bool) -> None:
        """Record what the replica itself computed.

        That is what its tape gave: the user may have clipped or reduced it since, and
        then the argument is no local gradient any more. Where no tape tells, it is the
        argument, if the optimizer is asked to aggregate it.

        Args:
            pairs: What the optimizer is given.
            handed: Whether it is to sum them over replicas.

        Raises:
            BadInputError: A variable is given twice: its two gradients and updates
                cannot be told apart by its name.
        """
        seen: set[str] = set()
        for argument, variable in pairs:
            path = self._table.find_path(variable)
            if path in seen:
                raise BadInputError(
                    f"The optimizer is given '{path}' twice in one call. Expected: "
                    "each variable once. Add up its gradients, or list it once."
                )
            seen.add(path)
            if self._table.is_overwritten(path):
                continue
            local = self._board.recall_gradient(path)
            if local is None and handed:
                local = argument
            if local is not None:
                self._board.tap("local_gradient", path, local)


def _is_aggregating(function: Any, *args: Any, **kwargs: Any) -> bool:
    """Whether a call leaves the sum over replicas to the optimizer.

    The families spell it in two ways, and new tf_keras takes both.
    """
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return True  # The call itself will say what is wrong with it.
    bound.apply_defaults()
    given = {**bound.arguments.get("kwargs", {}), **bound.arguments}
    return bool(
        given.get("experimental_aggregate_gradients", True)
        and not given.get("skip_gradients_aggregation", False)
    )
