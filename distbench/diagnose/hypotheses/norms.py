"""Sizes of a replica's gradient that a rule may go by."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from distbench.diagnose.clues.addends import Source, find_own_gradient, split_slices
from distbench.diagnose.clues.context import Context
from distbench.trace import SUMMED, WHOLE, SparseRows, Trace, TraceKey
from distbench.trace.numbers import Array, densify, measure_norm, take_numbers

Measure = Callable[[Source, int], float | Array]


class Norm(Protocol):
    """A norm that a clip may go by: a number, or one for each part of a value.

    An array of norms, one for each part, broadcasts against the value.
    """

    def __call__(self, source: Source, place: int) -> float | Array:
        """Norm of the addend at a place."""
        ...

    def relate(self, source: Source, value: Array) -> float | Array | None:
        """Norm of another value of the variable; None where it is not known."""
        ...


@dataclass(frozen=True, slots=True)
class OwnNorm:
    """A norm that is made of a value alone, whatever there is beside it."""

    measure: Callable[[Array], float | Array]

    def __call__(self, source: Source, place: int) -> float | Array:
        """Norm of the addend at a place."""
        return self.measure(source.terms[place])

    def relate(self, source: Source, value: Array) -> float | Array:  # noqa: ARG002  # as `Norm`
        """Norm of the value."""
        return self.measure(value)


def measure_units(value: Array) -> Array:
    """Euclidean norm over all axes but the last, or over a vector; axes are kept."""
    axes = tuple(range(value.ndim - 1)) or None
    return np.asarray(np.sqrt(np.sum(value * value, axis=axes, keepdims=True)))


TENSOR = OwnNorm(measure_norm)
"""Norm of one addend, repeated rows added up."""
ELEMENTS = OwnNorm(np.abs)
"""The absolute value of each element."""
UNITS = OwnNorm(measure_units)
"""Norm of what leads to one unit of a layer: over all axes but the last.

Of a vector or a number it is that of all of it, as where gradients are clipped
adaptively (Brock et al. 2021, *High-Performance Large-Scale Image Recognition Without
Normalization*, §4).
"""


class SliceNorm:
    """Norm of one addend as TensorFlow takes it of a sparse one: that of its slices."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __call__(self, source: Source, place: int) -> float:
        """Norm of the addend at a place; of a dense one its own."""
        value = find_own_gradient(self._context, source.case, source.replicas[place])
        if isinstance(value, SparseRows):
            return measure_norm(take_numbers(value))
        return measure_norm(source.terms[place])

    def relate(self, source: Source, value: Array) -> None:
        """Nobody knows which slices would make up a value."""


class GlobalNorm:
    """Norm over all variables of a replica's gradients at a step.

    Args:
        context: The wrong values.
        of_call: Whether of the variables that are updated with a value alone, where a
            step updates several times.
        of_rows: Whether repeated rows of sparse gradients are added up. TensorFlow's
            norm of such a gradient is that of its slices.
        of: The variables that it is of; None for all.
    """

    def __init__(
        self,
        context: Context,
        *,
        of_call: bool,
        of_rows: bool,
        of: Collection[str] | None = None,
    ) -> None:
        self._context = context
        self._of = of
        self._of_call = of_call
        self._of_rows = of_rows
        self._known: dict[tuple[int, int, int, bool], float] = {}

    def __call__(self, source: Source, place: int) -> float:
        """Norm of all gradients of the replica whose addend is at a place."""
        at, replica = source.case.key, source.replicas[place]
        is_changed = self._context.is_changed_linearly(source.case)
        known = (at.step, at.call if self._of_call else 0, replica, is_changed)
        if known not in self._known:
            key = replace(at, phase="local_gradient", replica=replica)
            evidence = self._context.evidence
            traces = [evidence.observed, evidence.reference]
            if self._context.phase == "local_gradient":
                traces.reverse()
            elif evidence.fed.apart and is_changed:
                key, traces = replace(at, replica=replica), [evidence.fed.apart]
            norms = (self.measure(trace, key) for trace in traces)
            self._known[known] = next((n for n in norms if n > 0), 0.0)
        return self._known[known]

    def relate(self, source: Source, value: Array) -> float:  # noqa: ARG002  # as `Norm`
        """Norm of all that was observed with the value, and of a sum that of all sums.

        Those may have been clipped where they were observed, and are taken from one
        device.
        """
        at, evidence = source.case.key, self._context.evidence
        if at.phase in SUMMED:
            key = replace(at, phase="local_gradient", replica=WHOLE)
            if norm := self.measure(evidence.reference, key):
                return norm
        return self.measure(evidence.observed, at)

    def measure(self, trace: Trace, key: TraceKey) -> float:
        """Norm of all that a trace has at a step, phase and replica."""
        take = densify if self._of_rows else take_numbers
        squares = [
            measure_norm(take(value)) ** 2
            for place, value in trace.select(
                step=key.step, phase=key.phase, replica=key.replica
            )
            if (place.call == key.call or not self._of_call)
            and (self._of is None or place.variable in self._of)
        ]
        return float(np.sqrt(sum(squares)))


def list_global_norms(context: Context) -> Iterator[GlobalNorm]:
    """List norms over a whole step, and over each update where a step has several.

    Where some gradients are sparse, each comes once more with their rows added up.
    """
    # For all selections: each reads all gradients of a step.
    yield from context.work_out("global norms", partial(_make_global_norms, context))


def _make_global_norms(context: Context) -> Sequence[GlobalNorm]:
    found = list(context.evidence.observed.select(phase="local_gradient"))
    of_calls = (False, True) if any(key.call for key, _ in found) else (False,)
    is_sparse = any(isinstance(value, SparseRows) for _, value in found)
    return tuple(
        GlobalNorm(context, of_call=of_call, of_rows=of_rows)
        for of_call, of_rows in itertools.product(
            of_calls, (False, True) if is_sparse else (False,)
        )
    )


class JointNorm:
    """One norm of all replicas' gradients, made of the norm of each.

    Args:
        norm: Measures one addend.
        join: Makes one norm of those of all addends, [addends, ...].
    """

    def __init__(self, norm: Norm, join: Callable[[Array], Array]) -> None:
        self._norm = norm
        self._join = join

    def __call__(self, source: Source, place: int) -> Array:  # noqa: ARG002  # as `Norm`
        """The joint norm, whichever addend is asked for."""
        norms = [self._norm(source, other) for other in range(len(source.terms))]
        return np.asarray(self._join(np.asarray(norms)))

    def relate(self, source: Source, value: Array) -> float | Array | None:
        """Norm of a value, with which no other is joined."""
        return self._norm.relate(source, value)


class Ratio:
    """A norm over that of the variable before the step, as in a trust ratio.

    Args:
        context: The wrong values.
        norm: Measures a value, as a whole or by parts.
    """

    def __init__(
        self, context: Context, norm: Callable[[Array], float | Array] = measure_norm
    ) -> None:
        self._context = context
        self._norm = norm

    def __call__(self, source: Source, place: int) -> float | Array:
        """Norm of the addend at a place over that of the variable."""
        return self.relate(source, source.terms[place])

    def relate(self, source: Source, value: Array) -> float | Array:
        """Norm of a value over the variable's; infinite if that is 0 or not known."""
        key = source.case.key
        before = self._context.evidence.get_before(key.step, "variable", key.variable)
        if before is None:
            return float("inf")
        whole = np.asarray(self._norm(densify(before)))
        ratio = np.full(whole.shape, np.inf)
        np.divide(self._norm(value), whole, out=ratio, where=whole > 0)
        return ratio


def list_norms(
    context: Context, sources: Sequence[Source], of: str = "each replica's gradients"
) -> Iterator[tuple[str, Norm, Sequence[Source]]]:
    """What a limit is called, of which norm it is, and what is clipped to it.

    Args:
        context: The wrong values.
        sources: What is clipped.
        of: What a global norm is of.
    """
    slices = [split_slices(context, source) for source in sources]
    # Of dense gradients alone, norms of slices are those of what they make up.
    is_sparse = any(
        one is not other for one, other in zip(sources, slices, strict=True)
    )
    tensor = "the norm of each variable's gradient to {:.6g}"
    yield tensor, TENSOR, sources
    if is_sparse:
        yield tensor, SliceNorm(context), sources
    every = f"the global norm of {of} to {{:.6g}}"
    for norm in list_global_norms(context):
        yield every, norm, sources
    yield f"{tensor} times that of the variable", Ratio(context), sources
    element = "its gradient's elements to ±{:.6g}"
    yield element, ELEMENTS, sources
    if is_sparse:
        yield f"{element}, slice by slice", ELEMENTS, slices
    unit = "the norm of each unit's gradient to {:.6g}"
    yield unit, UNITS, sources
    by_unit = Ratio(context, measure_units)
    yield f"{unit} times that of the unit's weights", by_unit, sources
