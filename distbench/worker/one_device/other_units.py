"""What one device makes of state in other units, and of gradients in others as well.

A cluster may hold N times one device's state, or an N-th, and be right: if that is
read at all, and if the same is made of it. So it is where a step leaves the same that
starts from a multiple of a rate and is given as small a part of the gradients. One
device tells both bit by bit: twice a number, or half of it, has the same digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from distbench.evidence import Tier
from distbench.scenario.choices import LARGER
from distbench.trace import (
    COMPUTED,
    STATE,
    SUMMED,
    WHOLE,
    Phase,
    Recorded,
    Trace,
    TraceKey,
    Value,
    change_numbers,
)
from distbench.trace.dtypes import is_whole
from distbench.trace.numbers import Array, densify, is_finite
from distbench.trace.units import list_factors
from distbench.worker.one_device.fed import FedSteps
from distbench.worker.one_device.held_state import take_holding
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import are_near, have_same_bits
from distbench.worker.taps.collect import State
from distbench.worker.taps.given import select_gradients

_TWICE = 2.0
Run: TypeAlias = Callable[[Reference, int, Any], None]
"""Takes a step on the global batch that has begun, from where the session is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Multiplied:
    """Gradients that are as many times one device's in every step.

    Attributes:
        phase: The first in which they are.
        part: As many times: N, or 1/N.
        paths: Of the variables.
    """

    phase: Phase
    part: float
    paths: frozenset[str]


def try_units(
    reference: Reference, tier: Tier, recorded: Trace, observed: Trace
) -> tuple[Trace, ...]:
    """What comes out otherwise where a part of the state is as the cluster holds it.

    Args:
        reference: Ran all steps of the tier before.
        tier: Which one; only in the free one a cluster's state is in its own units.
        recorded: The single-device run.
        observed: What the cluster did.

    Returns:
        As `WHOLE`, of each step, a trace for each part of the state of which replicas
        hold N times one device's, or an N-th. Notes have its `path` and `factor`,
        whether a step `raises` then, which none does on the cluster, and of which
        variables gradients that are so many times (`part`) as large are `undone` by the
        state: one device leaves the same, bit by bit, where both are in other units, of
        gradients of this size, of larger and of smaller ones.
    """
    factors = list_factors(observed, recorded) if tier == "free" else {}
    if not factors:
        return ()
    changed: dict[str, Recorded] = {}
    raising: set[str] = set()
    undone: _Multiplied | None = None
    with suppress(SubjectError):
        plain = _run(reference, tier, {})
        for path, factor in factors.items():
            changed[path] = {}
            try:
                # By less or more another side of a limit may be seen than is at stake.
                moved = _run(reference, tier, {path: factor})
            except SubjectError:
                raising.add(path)
                continue
            changed[path] = _find_effects(plain, moved, recorded, path)
            if not changed[path]:
                # It may be read behind what the step itself assigns to it.
                phases = (*COMPUTED, *STATE)
                held = take_holding(reference, tier, observed, recorded, [path], phases)
                if held is not None:
                    changed[path] = _find_effects(plain, held.values, recorded, path)
        read = {path: factors[path] for path, found in changed.items() if found}
        gradients = _find_multiplied(recorded, observed)
        if _undoes(reference, tier, recorded, read, gradients):
            undone = gradients
    return tuple(
        reference.make_trace(
            "units",
            found,
            path=path,
            factor=factors[path],
            raises=path in raising,
            undone=[] if undone is None else sorted(undone.paths),
            part=1.0 if undone is None else undone.part,
        )
        for path, found in changed.items()
    )


def _find_effects(
    plain: Recorded, moved: Mapping[TraceKey, Value], recorded: Trace, path: str
) -> Recorded:
    """What comes out otherwise, besides some state itself."""
    return {
        key: value
        for key, value in moved.items()
        if key.variable != path
        and not have_same_bits(plain.get(key), value)
        # What a step draws is no effect of what was moved.
        and have_same_bits(recorded.get(key), plain[key])
    }


def _find_multiplied(recorded: Trace, observed: Trace) -> _Multiplied | None:
    """Gradients in other units, in the first phase that has some."""
    for phase in SUMMED:
        due: dict[str, list[tuple[Any, Any]]] = {}
        for key, value in recorded.select(phase=phase, replica=WHOLE):
            seen = observed.get(key.at(0))
            if seen is not None and np.any(densify(value)):
                due.setdefault(key.variable, []).append((value, seen))
        for part in (1 / recorded.replicas, float(recorded.replicas)):
            paths = {
                path
                for path, pairs in due.items()
                if all(
                    are_near(*pair, recorded.dtypes[path], part=part) for pair in pairs
                )
            }
            if paths:
                return _Multiplied(phase=phase, part=part, paths=frozenset(paths))
    return None


def _undoes(
    reference: Reference,
    tier: Tier,
    recorded: Trace,
    factors: Mapping[str, float],
    gradients: _Multiplied | None,
) -> bool:
    """Whether steps leave the same in other units, of gradients of three sizes.

    A limit is for larger ones than these, a floor for smaller ones.
    """
    if gradients is None or not factors or not reference.session.tapped:
        return False
    times = _choose_times(recorded, factors, gradients.part)
    if times is None:
        return False
    units = {
        path: times if factor == gradients.part else 1 / times
        for path, factor in factors.items()
    }
    fed = _Fed(FedSteps(reference.session), recorded, gradients)
    tried = False
    for size in (1.0, LARGER, 1 / LARGER):
        plain = _run(reference, tier, {}, fed.multiply(size, size))
        moved = _run(reference, tier, units, fed.multiply(size, size * times))
        for step in range(recorded.steps):
            keys = [key for key in plain if key.step == step and key.phase in STATE]
            # What overflows is no measure, as of gradients that are too large.
            if not all(is_finite(run[key]) for run in (plain, moved) for key in keys):
                continue
            tried |= size == 1
            for key in keys:
                due = _multiply(plain[key], units.get(key.variable, 1.0))
                if not have_same_bits(due, moved[key]):
                    return False
    return tried


def _choose_times(
    recorded: Trace, factors: Mapping[str, float], part: float
) -> float | None:
    """By what gradients in other units are multiplied: twice, or half of it.

    Which unit is the larger one on the cluster does not matter, but half of a whole
    number may be none: so None where some would be halved either way.
    """
    for times in (_TWICE, 1 / _TWICE):
        halved = {
            path for path, factor in factors.items() if (factor == part) == (times < 1)
        }
        if not any(is_whole(recorded.dtypes[path]) for path in halved):
            return times
    return None


@dataclass(frozen=True, slots=True)
class _Fed:
    """One device's own gradients, as steps are fed with them in other sizes.

    Attributes:
        steps: Take them.
        recorded: Has them.
        gradients: Those that are in other units.
    """

    steps: FedSteps
    recorded: Trace
    gradients: _Multiplied

    def multiply(self, rest: float, own: float) -> Run:
        """What runs a step on so many times those in other units, and the rest."""

        def run(reference: Reference, step: int, batch: Any) -> None:
            found = select_gradients(self.recorded, self.gradients.phase, step)
            given = {
                at: _multiply(value, own if at[2] in self.gradients.paths else rest)
                for at, value in found.items()
            }
            with self.steps.feed(given, batch) as by:
                reference.take_whole(step, batch, by)

        return run


def _run(
    reference: Reference,
    tier: Tier,
    moved: Mapping[str, float],
    run: Run = Reference.take_whole,
) -> Recorded:
    """What steps leave that start with so many times some parts of the state."""
    session = reference.session
    values = session.make_values()
    for step, batch, before in reference.list_steps(tier):
        _begin(reference, step, before, moved)
        run(reference, step, batch)
        session.collect_taps(step, values, replica=WHOLE)
        session.collect_state(step, session.read_state(), values, replica=WHOLE)
    return values


def _begin(
    reference: Reference, step: int, before: State, moved: Mapping[str, float]
) -> None:
    """Begin a step with so many times some parts of the state.

    What a program sets before a step, such as a rate of that step, it sets to its own
    units, whatever was there.
    """
    session = reference.session

    def begin(state: State) -> State:
        session.restore_state(state)
        reference.begin_whole(step)
        return session.read_state()

    due = {k: _multiply(array, moved.get(k[0], 1.0)) for k, array in before.items()}
    if not (moved and session.program.acts_between_steps):
        begin(due)
        return
    plain, begun = begin(before), begin(due)
    for key in begun:
        if key[0] in moved and have_same_bits(begun[key], plain[key]):
            begun[key] = _multiply(plain[key], moved[key[0]])
    session.restore_state(begun)


def _multiply(value: Any, times: float) -> Any:
    def multiply(array: Array) -> Array:
        if is_whole(array.dtype.name):
            return np.asarray(np.rint(array * times), array.dtype)
        return np.asarray(array * array.dtype.type(times))

    return value if times == 1 else change_numbers(value, multiply)
