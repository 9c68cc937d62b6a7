"""What a hypothesis may look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from distbench.compare.arrays.pair import DIRECTION, Pair
from distbench.compare.comparison import Judged
from distbench.diagnose.clues.cases import find_rounding, find_tolerance, take_rows
from distbench.evidence import Evidence
from distbench.trace import (
    SUMMED,
    WHOLE,
    Phase,
    SparseRows,
    Trace,
    TraceKey,
    Value,
    VariableInfo,
)
from distbench.trace.numbers import Array, densify

T = TypeVar("T")
Numbered = tuple[int, Pair]
"""A wrong value with its number among those of a context."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Context:
    """The wrong values of one phase, and everything else that was recorded.

    Attributes:
        evidence: What was observed and expected.
        phase: Phase of the wrong values.
        cases: The wrong values, in the order of their keys.
        right: Keys of the values of this phase that are as they should be.
        root: Whether nothing before these values was seen, but for the loss.
        led: Whether a statistic follows the examples of single replicas alone.
        wrong: What is wrong in any phase, also where it follows from something else.
    """

    evidence: Evidence
    phase: Phase
    cases: tuple[Pair, ...]
    right: frozenset[TraceKey] = frozenset()
    root: bool = False
    led: bool = False
    wrong: tuple[Judged, ...] = ()
    _worked_out: dict[object, Any] = field(default_factory=dict, repr=False)
    _finite: tuple[Numbered, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        finite = tuple(
            (number, case)
            for number, case in enumerate(self.cases)
            if np.isfinite(case.observed).all() and np.isfinite(case.expected).all()
        )
        object.__setattr__(self, "_finite", finite)

    @property
    def replicas(self) -> int:
        """Number of replicas, N."""
        return self.evidence.observed.replicas

    @property
    def times_share(self) -> float:
        """How many times the share that it is taken for a tape's gradient was."""
        return self.evidence.measure.times_share

    @property
    def shards(self) -> tuple[int, ...]:
        """Examples of each replica in the step of the first wrong value."""
        return self.get_shards(self.cases[0]) if self.cases else ()

    @property
    def is_uneven(self) -> bool:
        """Whether the replicas had shards of several sizes where a value is wrong."""
        return any(len(set(self.get_shards(case))) > 1 for case in self.cases)

    def get_shards(self, case: Pair) -> tuple[int, ...]:
        """Examples of each replica in the step of a value."""
        return self.evidence.reference.get_shards(case.key.step)

    @property
    def infos(self) -> Mapping[str, VariableInfo]:
        """The subject's variables by path."""
        return self.evidence.observed.by_path

    @property
    def is_right_elsewhere(self) -> bool:
        """Whether some replicas have right what others have wrong.

        No collective does that: what all take part in comes out alike on all.
        """
        return any(map(self._has_right_copy, self.cases))

    @property
    def spares_replicas(self) -> bool:
        """Whether a replica has nothing wrong, or a right copy of all that is.

        Of a few wrong values such a copy may be one that noise hides.
        """
        wrong = {case.key.replica for case in self.cases}
        return bool({key.replica for key in self.right} - wrong) or (
            bool(wrong) and all(map(self._has_right_copy, self.cases))
        )

    def _has_right_copy(self, case: Pair) -> bool:
        right = self.work_out(
            ("places", self.right), lambda: {key.at(WHOLE) for key in self.right}
        )
        return case.key.at(WHOLE) in right

    @property
    def draws_nothing(self) -> bool:
        """Whether it is known that no step draws random numbers."""
        traces = (self.evidence.observed, self.evidence.reference)
        return all(trace.draws is not None and not trace.draws for trace in traces)

    @property
    def draws_some(self) -> bool:
        """Whether it is known that some step draws random numbers."""
        traces = (self.evidence.observed, self.evidence.reference)
        return any(trace.draws for trace in traces)

    @property
    def drawn_at(self) -> str:
        """Where a step of one device draws random numbers first; empty if not known."""
        return min(self.evidence.reference.draws or (), default="")

    def select(self, cases: tuple[Pair, ...]) -> Context:
        """This context with some of its wrong values alone."""
        return replace(self, cases=cases)

    def judge_by(self, evidence: Evidence) -> Context:
        """This context with something else expected of what it may look at."""
        return replace(self, evidence=evidence, _worked_out={})

    def part_by_variable(self) -> Iterator[Context]:
        """This context for each variable, with the wrong values of that one alone."""
        for name in dict.fromkeys(case.key.variable for case in self.cases):
            cases = (case for case in self.cases if case.key.variable == name)
            yield self.select(tuple(cases))

    def work_out(self, question: object, answer: Callable[[], T]) -> T:
        """An answer once for all selections of wrong values.

        Args:
            question: Names it, with all that it depends on but the evidence. A value is
                named by its key: of one that is held against something else later, as
                before a clip, what was asked first stands.
            answer: Makes it.
        """
        if question not in self._worked_out:
            self._worked_out[question] = answer()
        found: T = self._worked_out[question]
        return found

    def list_cases(self) -> Iterator[Numbered]:
        """The wrong values with their numbers, those that are not finite left out."""
        return iter(self._finite)

    def list_steps(self) -> Mapping[int, Sequence[Numbered]]:
        """The wrong values by step; see `list_cases`."""
        return self.group_cases(lambda case: case.key.step)

    def group_cases(self, name: Callable[[Pair], T]) -> dict[T, list[Numbered]]:
        """The wrong values by what a function gives for each; see `list_cases`."""
        found: dict[T, list[Numbered]] = {}
        for number, case in self.list_cases():
            found.setdefault(name(case), []).append((number, case))
        return found

    def read_state(self, trace: Trace) -> dict[int, Array]:
        """What a trace has of the wrong values, dense; see `list_cases`.

        What has replica 0 alone was fed with a sum that nobody saw: all have that.
        """
        is_of_each = any(key.replica > 0 for key in trace.values)
        return {
            number: take_rows(value, case)
            for number, case in self.list_cases()
            if (value := trace.get(case.key if is_of_each else case.key.at(0)))
            is not None
        }

    def matches(self, case: Pair, value: Array) -> bool:
        """Whether a value is the observed one, but for rounding."""
        return self.are_near(case, case.observed, value)

    def match_all(self, predicted: Mapping[int, Array]) -> bool:
        """Whether all that is predicted is what was observed; see `matches`."""
        return all(self.matches(self.cases[n], v) for n, v in predicted.items())

    def are_near(self, case: Pair, left: Array, right: Array) -> bool:
        """Whether two values for a case differ by no more than rounding."""
        with np.errstate(invalid="ignore"):
            rest = np.abs(left - right)
        return bool(np.all(rest <= find_tolerance(case, self.replicas)))

    def find_terms(self, case: Pair) -> tuple[Array, ...]:
        """The replicas' own gradients of a value, in its rows.

        Observed ones if they were seen, else those of the reference's shards; or what
        one device makes of them on their way, if that is linear.
        """
        if self.is_changed_linearly(case):
            return self.find_changed(case)
        if case.terms and case.against != DIRECTION:
            return tuple(case.terms)
        return self.find_terms_of(case, case.key.variable)

    def find_changed(self, case: Pair) -> tuple[Array, ...]:
        """What one device makes of each replica's own gradient before the sum.

        In the rows of a case. Empty where the step hands on what its tape gave, or
        where one device was not asked.
        """
        apart = self.evidence.fed.apart
        if self.phase != "reduced_gradient" or apart is None:
            return ()
        return self.work_out(
            ("changed", case.key, case.against),
            lambda: tuple(take_rows(v, case) for v in apart.get_replicas(case.key)),
        )

    def is_changed(self, case: Pair) -> bool:
        """Whether one device changes the sum in a way that does not add up."""
        return bool(self.find_changed(case)) and not self.is_changed_linearly(case)

    def is_changed_linearly(self, case: Pair) -> bool:
        """Whether what it makes of each adds up to what it makes of the sum.

        Of a single one that would say nothing: whatever is made of it is the sum.
        """
        changed = self.find_changed(case)
        return len(changed) > 1 and self.work_out(
            ("linear", case.key, case.against),
            lambda: bool(
                np.all(
                    np.abs(np.sum(changed, axis=0) - case.expected)
                    <= find_rounding(case, changed) + case.margin.bound
                )
            ),
        )

    def find_terms_of(
        self, case: Pair, variable: str, step: int | None = None
    ) -> tuple[Array, ...]:
        """The replicas' own gradients of any variable, in the rows of a case."""
        key = case.key if step is None else replace(case.key, step=step)
        found = self._list_own(key, variable)
        return tuple(take_rows(value, case) for value in next(found, ()))

    def move_to(self, case: Pair, variable: str) -> Pair:
        """A case as of the update that takes a variable's gradient.

        Of several updates of a step that of the case itself, if it does.
        """
        reference = self.evidence.reference
        if reference.calls == 1 and case.key.call == 0:
            return case  # each pair of variables is asked about
        key = replace(case.key.at(WHOLE), phase="local_gradient", variable=variable)
        calls = (case.key.call, *range(reference.calls))
        found = (c for c in calls if replace(key, call=c) in reference.values)
        return replace(case, key=replace(case.key, call=next(found, case.key.call)))

    def find_slices(self, case: Pair) -> tuple[SparseRows, ...]:
        """The replicas' own sparse gradients as they were seen.

        Empty where a step changes its gradients before the sum.
        """
        handed = self.find_changed(case)
        if handed and any(
            np.any(np.abs(own - seen) > find_rounding(case, handed))
            for own, seen in zip(
                self.find_terms_of(case, case.key.variable), handed, strict=False
            )
        ):
            return ()
        return self.find_own_slices(case)

    def find_own_slices(self, case: Pair) -> tuple[SparseRows, ...]:
        """The replicas' own sparse gradients, also where a step changes them later."""
        for found in self._list_own(case.key, case.key.variable):
            values = tuple(value for value in found if isinstance(value, SparseRows))
            if len(values) == len(found):
                return values
        return ()

    def is_sparse(self, variable: str) -> bool:
        """Whether the replicas' own gradients of a variable are sparse."""
        own = (
            value
            for trace in (self.evidence.observed, self.evidence.reference)
            for _, value in trace.select(phase="local_gradient", variable=variable)
        )
        return self.work_out(
            ("sparse", variable), lambda: any(isinstance(v, SparseRows) for v in own)
        )

    def _list_own(self, key: TraceKey, variable: str) -> Iterator[tuple[Value, ...]]:
        """The replicas' own gradients of a variable: observed, then the reference's."""
        evidence = self.evidence
        for trace in (evidence.observed, evidence.reference):
            for own in evidence.name_gradients(key, "local_gradient", variable):
                if values := trace.get_replicas(own):
                    yield values

    def find_due_gradient(self, case: Pair, variable: str) -> Array | None:
        """The gradient that a slot of a variable should take, dense.

        Where no update could be watched, that of the global batch on one device.
        """
        seen = self.find_gradient(case, variable)
        if seen is not None:
            return seen
        whole = case.key.at(WHOLE)
        for key in self.evidence.name_gradients(whole, "local_gradient", variable):
            if (value := self.evidence.reference.get(key)) is not None:
                return densify(value)
        return None

    def find_gradient(self, case: Pair, variable: str | None = None) -> Array | None:
        """The gradient that a replica's update was fed with, dense."""
        evidence, path = self.evidence, variable or case.key.variable
        for phase in reversed(SUMMED):
            for key in evidence.name_gradients(case.key, phase, path):
                value = evidence.observed.get(key)
                if value is None:
                    value = evidence.reference.get(key.at(WHOLE))
                if value is not None:
                    return densify(value)
        return None


def find_shards(context: Context, case: Pair) -> tuple[Array, ...]:
    """What one device makes of each shard alone, in the rows of a case.

    Empty if it is not known of all of them.
    """
    phase: Phase = "loss" if case.key.phase == "loss" else "local_gradient"
    values = context.evidence.reference.get_replicas(replace(case.key, phase=phase))
    return tuple(take_rows(value, case) for value in values)
