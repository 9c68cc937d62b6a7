"""What a run recorded: arrays keyed by (step, call, phase, variable, replica)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from distbench.errors import BadInputError
from distbench.trace.infos import MetricInfo as MetricInfo
from distbench.trace.infos import VariableInfo as VariableInfo
from distbench.trace.numbers import is_finite
from distbench.trace.shelf import Shelved
from distbench.trace.values import SparseRows as SparseRows
from distbench.trace.values import Value as Value
from distbench.trace.values import Values as Values
from distbench.trace.values import change_numbers as change_numbers
from distbench.trace.values import get_numbers as get_numbers

Phase = Literal[
    "loss",
    "local_gradient",
    "reduced_gradient",
    "applied_gradient",
    "slot",
    "variable",
    "iterations",
]
PHASES: tuple[Phase, ...] = (
    "loss",
    "local_gradient",
    "reduced_gradient",
    "applied_gradient",
    "slot",
    "variable",
    "iterations",
)
"""In causal order: what is wrong in one shows in those after it."""
COMPUTED: tuple[Phase, ...] = ("loss", "local_gradient")
"""What a replica computes of its own examples."""
SUMMED: tuple[Phase, ...] = ("reduced_gradient", "applied_gradient")
"""What is made of the gradients of all replicas."""
GRADIENTS: tuple[Phase, ...] = ("local_gradient", *SUMMED)
"""What a step goes through once for each of its updates."""
UPDATED: tuple[Phase, ...] = ("slot", "variable")
"""The state that an update rule computes."""
STATE: tuple[Phase, ...] = (*UPDATED, "iterations")
"""What a step leaves behind."""

WHOLE = -1
"""Replica number of a value that belongs to the whole global batch on one device."""

INITIAL = -1
"""Step number of the state before the first step."""

SHOWN = "shown/"
"""Begins the name of a number that a step shows by itself, as `fit` does."""

DIGESTS = "digests"
"""The note of a trace that has digests in the place of all values but losses."""

OF_BATCH = "batch"
"""Stands among the constants of a seed that is made of the examples as well."""

_PLACES = {phase: place for place, phase in enumerate(PHASES)}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TraceKey:
    """Names one observed value.

    Attributes:
        step: Step number from 0; `INITIAL` for the state before the first step.
        call: Which `apply_gradients` call of the step, from 0; 0 for loss and state.
        phase: One of `PHASES`.
        variable: Path of the variable, `""` for the loss, in the phase of the loss also
            the name of a metric, or of what is `SHOWN`.
        replica: Global replica number, or `WHOLE`.
    """

    step: int
    phase: Phase
    variable: str = ""
    replica: int = WHOLE
    call: int = 0

    def at(self, replica: int) -> TraceKey:
        """The key of the same value on another replica, or as a `WHOLE`."""
        return TraceKey(
            step=self.step,
            phase=self.phase,
            variable=self.variable,
            replica=replica,
            call=self.call,
        )

    @property
    def before(self) -> TraceKey:
        """The key of the same value a step earlier: of the first one's, `INITIAL`."""
        return replace(self, step=max(INITIAL, self.step - 1))

    @property
    def order(self) -> tuple[int, int, int, str, int]:
        """Its place among others, in causal order."""
        return (
            self.step,
            self.call,
            _PLACES[self.phase],
            self.variable,
            self.replica,
        )


Recorded = MutableMapping[TraceKey, Value]
"""Values as they are recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Some of the places of a trace; None takes all.

    Attributes:
        step: A step, or `INITIAL`.
        phase: One of `PHASES`.
        variable: Path of a variable.
        replica: A replica, or `WHOLE`.
    """

    step: int | None = None
    phase: Phase | None = None
    variable: str | None = None
    replica: int | None = None

    def has(self, key: TraceKey) -> bool:
        """Whether a place is among them."""
        return (
            self.step in (None, key.step)
            and self.phase in (None, key.phase)
            and self.variable in (None, key.variable)
            and self.replica in (None, key.replica)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """An immutable record of one run.

    Attributes:
        name: What was run, for messages: `reference`, `mwms:2`, ...
        replicas: Number of replicas, N.
        shards: Examples of each replica in the first step, and in every other one that
            `resized` does not name.
        variables: Everything that the subject's state consists of.
        values: The arrays; read-only, the large ones read whenever they are asked for.
        notes: Facts about the run that diagnosis or report need, as JSON values.
        metrics: What the subject shows besides its loss.
        resized: Examples of each replica in steps whose batch has another size, as the
            last one of an epoch often has.
        by_path: What is known of each variable.
        dtypes: The dtype in which each variable, and the loss (`""`), was computed.
        steps: Number of steps that were recorded.
        calls: Number of updates that a step makes, at least 1.
        trained: Paths of the variables of which a gradient was recorded.
    """

    name: str
    replicas: int
    shards: tuple[int, ...]
    variables: tuple[VariableInfo, ...]
    values: Mapping[TraceKey, Value]
    notes: Mapping[str, object] = field(default_factory=dict)
    metrics: tuple[MetricInfo, ...] = ()
    resized: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    by_path: Mapping[str, VariableInfo] = field(init=False, repr=False)
    dtypes: Mapping[str, str] = field(init=False, repr=False)
    steps: int = field(init=False, repr=False)
    calls: int = field(init=False, repr=False)
    trained: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        values = Values(self.values)
        for held in values.held.values():
            for array in () if isinstance(held, Shelved) else list_arrays(held):
                array.setflags(write=False)
        object.__setattr__(self, "values", values)
        by_path = {variable.path: variable for variable in self.variables}
        object.__setattr__(self, "by_path", MappingProxyType(by_path))
        dtypes = {path: variable.dtype for path, variable in by_path.items()}
        if (loss := self.notes.get("loss_dtype")) is not None:
            dtypes[""] = str(loss)
        object.__setattr__(self, "dtypes", MappingProxyType(dtypes))
        last = max((key.step for key in values), default=-1)
        object.__setattr__(self, "steps", last + 1)
        calls = 1 + max((key.call for key in values), default=0)
        object.__setattr__(self, "calls", calls)
        trained = frozenset(key.variable for key in values if key.phase in GRADIENTS)
        object.__setattr__(self, "trained", trained)

    @property
    def digested(self) -> bool:
        """Whether it has digests in the place of all values but losses."""
        return bool(self.notes.get(DIGESTS))

    @property
    def draws(self) -> Mapping[str, str] | None:
        """Whose random numbers a step draws, by the place; None where not known."""
        return cast("Mapping[str, str] | None", self.notes.get("draws"))

    @property
    def metric_paths(self) -> frozenset[str]:
        """Paths of the variables that metrics are made of."""
        return frozenset(path for metric in self.metrics for path in metric.state)

    def get_shards(self, step: int) -> tuple[int, ...]:
        """Examples of each replica in a step."""
        return self.resized.get(step, self.shards)

    def get(self, key: TraceKey) -> Value | None:
        """The value under a key, or None where it was not recorded."""
        return self.values.get(key)

    def get_replicas(self, key: TraceKey) -> tuple[Value, ...]:
        """The values of all replicas, in their order; empty unless each has one."""
        found = [self.get(key.at(replica)) for replica in range(self.replicas)]
        values = tuple(value for value in found if value is not None)
        return values if len(values) == len(found) else ()

    def select(
        self,
        *,
        step: int | None = None,
        phase: Phase | None = None,
        variable: str | None = None,
        replica: int | None = None,
    ) -> Iterator[tuple[TraceKey, Value]]:
        """All values that match, in the order of their keys."""
        found = [
            key
            for key in self.values
            if (step is None or key.step == step)
            and (phase is None or key.phase == phase)
            and (variable is None or key.variable == variable)
            and (replica is None or key.replica == replica)
        ]
        for key in sorted(found, key=lambda key: key.order):
            yield key, self.values[key]

    def find_finite(
        self, step: int, of: Collection[str] | None = None
    ) -> dict[int, bool]:
        """By replica, whether its own gradients of a step are finite.

        Args:
            step: Its number.
            of: Paths of the variables to ask; None asks all.
        """
        finite: dict[int, bool] = {}
        for key, value in self.select(step=step, phase="local_gradient"):
            if of is not None and key.variable not in of:
                continue
            finite[key.replica] = finite.get(key.replica, True) and is_finite(value)
        return finite

    def find_overflowing(
        self, step: int, of: Collection[str] | None = None
    ) -> tuple[int, ...]:
        """Replicas whose own gradients are not finite; none if those of all are not.

        See `find_finite`.
        """
        finite = self.find_finite(step, of)
        bad = tuple(replica for replica in sorted(finite) if not finite[replica])
        return bad if len(bad) < len(finite) else ()

    def find_spoilers(self, step: int) -> tuple[int, ...]:
        """The replicas that handed Inf or NaN to a collective in a step."""
        noted = [(r, self.notes.get(f"spoilt-{r}")) for r in range(self.replicas)]
        return tuple(
            r for r, steps in noted if isinstance(steps, list) and step in steps
        )


def merge_traces(name: str, parts: Iterable[Trace]) -> Trace:
    """Join what the tasks of one cluster recorded; replica numbers are global.

    Raises:
        BadInputError: Two tasks name their variables differently, and what is read by
            its name in one is not there in the other.
    """
    parts = list(parts)
    first = parts[0]
    values: Values[TraceKey] = Values()
    for part in parts:
        _check_names(name, first, part)
        values.held.update(Values(part.values).held)
    notes: dict[str, object] = {}
    for part in parts:
        notes.update(part.notes)
    return Trace(
        name=name,
        replicas=first.replicas,
        shards=first.shards,
        variables=first.variables,
        values=values,
        notes=notes,
        metrics=first.metrics,
        resized=first.resized,
    )


def _check_names(name: str, first: Trace, part: Trace) -> None:
    """Refuse parts whose variables are not the same ones.

    They may come in another order: of slots, in that in which gradients were handed
    over, and of a set each process has its own.
    """
    paths = [v.path for v in first.variables], [v.path for v in part.variables]
    shapes = [{v.path: v.shape for v in t.variables} for t in (first, part)]
    if paths[0] == paths[1] or shapes[0] == shapes[1]:
        return
    own = [[p for p in paths[n] if p not in paths[1 - n]] for n in (0, 1)]
    if len(paths[0]) == len(paths[1]) and own[0]:
        pair = next((a, b) for a, b in zip(*paths, strict=True) if a != b)
        raise BadInputError(
            f"Variables are named differently in the tasks of '{name}'. Received: "
            f"{pair[0]!r} in {first.name}, {pair[1]!r} in {part.name}. Give a variable "
            "the same name in every process, not one made of its number, host or time."
        )
    listed = own if own[0] or own[1] else paths
    raise BadInputError(
        f"The tasks of '{name}' do not hold the same variables. "
        f"Received: {listed[0]} in {first.name}, {listed[1]} in {part.name}"
        f"{'' if listed is paths else ', beside those of both'}. "
        "Create the same variables in the same order in every task."
    )


def list_arrays(value: Value) -> tuple[npt.NDArray[np.generic], ...]:
    """What it consists of: itself, or the indices and the numbers of sparse rows."""
    if isinstance(value, SparseRows):
        return (value.indices, value.values)
    return (value,)
