"""An optimizer that does something to the gradients that it is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from distbench.samples.replicas import all_reduce


class Changing:
    """Changes the argument of `apply_gradients`. A stock optimizer is its base.

    Attributes:
        sums_first: Whether the gradients are summed over the replicas before that; the
            base then adds up nothing.
    """

    sums_first = False

    def apply_gradients(
        self, grads_and_vars: Iterable[Any], name: Any = None, **options: Any
    ) -> Any:
        """Hand over what becomes of the gradients."""
        gradients, variables = zip(*grads_and_vars, strict=True)
        if self.sums_first:
            options["experimental_aggregate_gradients"] = False
            gradients = all_reduce("sum", gradients)
        pairs = list(zip(self.change(gradients), variables, strict=True))
        return super().apply_gradients(pairs, name, **options)  # type: ignore[misc]  # of the base

    def change(self, gradients: Sequence[Any]) -> Sequence[Any]:
        """What becomes of the gradients of all variables."""
        raise NotImplementedError
