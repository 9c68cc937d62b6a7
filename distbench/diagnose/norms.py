"""Sizes of a replica's gradient that a rule may go by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from distbench.compare.values import densify, measure_norm
from distbench.diagnose.addends import Source
from distbench.diagnose.context import Context
from distbench.trace import SparseRows

Measure = Callable[[Source, int], float]


class Norm(Protocol):
    """A norm that a clip may go by."""

    def __call__(self, source: Source, place: int) -> float:
        """That of the addend at a place."""
        ...

    def relate(self, source: Source, norm: float) -> float | None:
        """What a value with a norm of its own has; None where that is not known."""
        ...


class TensorNorm:
    """Norm of one addend, repeated rows added up."""

    def __call__(self, source: Source, place: int) -> float:
        """That norm of the addend at a place."""
        return measure_norm(source.terms[place])

    def relate(self, source: Source, norm: float) -> float:  # noqa: ARG002  # as `Norm`
        """The norm itself."""
        return norm


class SliceNorm:
    """Norm of one addend as TensorFlow takes it of a sparse one: that of its slices."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __call__(self, source: Source, place: int) -> float:
        """Norm of the addend at a place; of a dense one its own."""
        key = replace(
            source.case.key, phase="local_gradient", replica=source.replicas[place]
        )
        evidence = self._context.evidence
        for trace in (evidence.observed, evidence.reference):
            value = trace.get(key)
            if isinstance(value, SparseRows):
                return measure_norm(np.asarray(value.values, np.float64))
        return measure_norm(source.terms[place])

    def relate(self, source: Source, norm: float) -> None:
        """Nobody knows which slices would make up a value."""


class GlobalNorm:
    """Norm over all variables of a replica's gradients at a step."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[tuple[int, int], float] = {}

    def __call__(self, source: Source, place: int) -> float:
        """That norm of the replica whose addend is at a place."""
        step, replica = source.case.key.step, source.replicas[place]
        if (step, replica) not in self._known:
            traces = [self._context.evidence.observed, self._context.evidence.reference]
            if self._context.phase == "local_gradient":
                traces.reverse()
            squares = [0.0]
            for trace in traces:
                squares = [
                    # TensorFlow's norm of a sparse gradient is that of its slices.
                    measure_norm(np.asarray(getattr(v, "values", v), np.float64)) ** 2
                    for k, v in trace.values.items()
                    if (k.step, k.phase, k.replica) == (step, "local_gradient", replica)
                ]
                if squares:
                    break
            self._known[(step, replica)] = float(np.sqrt(sum(squares)))
        return self._known[(step, replica)]

    def relate(self, source: Source, norm: float) -> None:
        """Nobody knows the other variables' values."""


class VariableNorm:
    """Norm of one addend over that of its variable before the step: a trust ratio's."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __call__(self, source: Source, place: int) -> float:
        """That ratio of the addend at a place."""
        return self.relate(source, measure_norm(source.terms[place]))

    def relate(self, source: Source, norm: float) -> float:
        """A norm over that of the variable; infinite where that is 0 or not known."""
        key = source.case.key
        value = self._context.evidence.get_before(key.step, "variable", key.variable)
        whole = 0.0 if value is None else measure_norm(densify(value))
        return norm / whole if whole > 0 else float("inf")
