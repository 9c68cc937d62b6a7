"""Variables that nobody has listed: taken up as a tape or an optimizer meets them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from distbench.worker.state.components import is_variable, list_components
from distbench.worker.state.variables import (
    StateVariable,
    VariableTable,
    list_state,
    make_unique,
)


class LearnedTable(VariableTable):
    """A table that takes up each variable of the model when it is first met.

    Args:
        listed: Variables that are known from the beginning.
    """

    def __init__(self, listed: Iterable[Any] = ()) -> None:
        self._met = list(listed)
        super().__init__(list_state(self._met))

    def find_path(self, variable: Any) -> str:
        """See `VariableTable`; a new one gets a path."""
        self._learn(variable)
        return super().find_path(variable)

    def has(self, variable: Any) -> bool:
        """Whether an object is a variable: then it is one of the table from now on."""
        if not is_variable(variable):
            return False
        self._learn(variable)
        return True

    def refresh(
        self,
        optimizers: Iterable[Any],
        ignored: Collection[int],
        find_counter: Callable[[Any], Any] = lambda _: None,
    ) -> None:
        """List the optimizers' state anew: a step may have made some."""
        self.replace(list_state(self._met, optimizers, ignored, find_counter))

    def _learn(self, variable: Any) -> None:
        stand_ins = (variable, *list_components(variable))
        if any(id(stand_in) in self._by_id for stand_in in stand_ins):
            return
        self._met.append(variable)
        taken = {v.info.path for v in self.state if v.info.role == "variable"}
        for new in list_state([variable]):
            path = make_unique(new.info.path, taken)
            taken.add(path)
            info = replace(new.info, path=path)
            self.replace((*self.state, StateVariable(info, variable, new.components)))
