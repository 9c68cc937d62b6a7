"""State along which a program by hand takes its steps, where no gradient was seen.

A step that asks its tapes for the gradients of several tasks shows none of the
replicas' own, and one device cannot be fed with any. Of a momentum it shows still that
the variable moves along it: on one device every step is the same multiple of what the
state holds after it. Moving statistics of the data lead no variable in this way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import share_by_size
from distbench.compare.state.leading import shows_gradients
from distbench.diagnose.clues.cases import find_base, take_rows
from distbench.diagnose.clues.context import Context, Numbered
from distbench.diagnose.clues.fit import (
    Row,
    fit_weights,
    leaves_nothing,
)
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.slot_facts import fit_taken
from distbench.trace import WHOLE, TraceKey
from distbench.trace.numbers import Array, densify

Steering = Mapping[str, tuple[str, float]]
"""By trained variable, the state that it moves along and its rate."""
Taken = tuple[Array, float]
"""A state that one device comes to, and how many times what is new in it counts."""


def find_steering(context: Context) -> Steering:
    """State that trained variables move along, where no gradient was seen."""
    if context.phase != "variable" or shows_gradients(context.evidence):
        return {}
    return context.work_out("steering", lambda: _find_steering(context))


def list_steering(context: Context) -> frozenset[str]:
    """The paths of that state."""
    return frozenset(path for path, _ in find_steering(context).values())


def part_by_state(context: Context) -> Iterator[Context]:
    """A context for each variable, with the state that it moves along."""
    steering = find_steering(context)
    parts: dict[str, list[Pair]] = {}
    for case in context.cases:
        path = case.key.variable
        state, _ = steering.get(path, (path, 0.0))
        parts.setdefault(state, []).append(case)
    for cases in parts.values():
        yield context.select(tuple(cases))


def explain_by_hidden_sum(context: Context) -> Iterator[Hypothesis]:
    """The state takes another sum than that of all replicas.

    With expected = β · before + new, where what is new grows in proportion to the sum,
    c times the sum leads to c · expected + (1 - c) β · before. What the gradient of one
    replica leads to, its shard shows on one device: as it is, or times its part of the
    global batch where the program takes a mean.
    """
    n = context.replicas
    if n == 1 or not find_steering(context):
        return
    for is_mean in (False, True):
        yield Hypothesis(
            code="missing-reduction",
            predicted=_predict(context, _take_shards(context, is_mean)),
            detail="each replica's step follows from its own gradient alone",
        )
        for kept in range(min(n, 8)):
            yield Hypothesis(
                code="replica-dropped",
                predicted=_predict(context, _take_shards(context, is_mean, kept)),
                detail=f"the step follows from the gradient of replica {kept} alone",
                replicas=tuple(r for r in range(n) if r != kept),
            )
    ways = [
        ("mean-instead-of-sum", 1 / n, f"the sum divided by N = {n}"),
        ("double-reduction", float(n), f"the sum times N = {n}"),
    ]
    found = fit_taken(list(_list_states(context)))
    if found is not None:
        ways.append(("scale-error", found[0], f"{found[0]:.6g} times the sum"))
    for code, factor, words in ways:
        taken = {i: (case.expected, factor) for i, case in _list_states(context)}
        yield Hypothesis(
            code=code,
            predicted=_predict(context, taken),
            detail=f"the step follows from {words}",
            ratio=factor,
        )


def _find_steering(context: Context) -> dict[str, tuple[str, float]]:
    evidence = context.evidence
    models = [v for v in evidence.reference.variables if v.role == "variable"]
    found: dict[str, tuple[str, float]] = {}
    for variable in models:
        for state in models:
            if variable.trainable and not state.trainable:
                rate = _fit_rate(context, variable.path, state.path)
                if rate is not None:
                    found[variable.path] = state.path, rate
    return found


def _fit_rate(context: Context, variable: str, state: str) -> float | None:
    """How much of a state a variable moves by in every step; None if it does not."""
    evidence = context.evidence
    rows = []
    for step in range(evidence.reference.steps):
        key = TraceKey(step=step, phase="variable", variable=variable, replica=WHOLE)
        found = (
            evidence.reference.get(key),
            evidence.get_before(step, "variable", variable),
            evidence.reference.get(replace(key, variable=state)),
        )
        after, before, along = (None if v is None else densify(v) for v in found)
        if after is None or before is None or along is None:
            return None
        if along.shape != after.shape:
            return None
        rows.append(Row(number=step, target=after - before, features=(along,)))
    weights = fit_weights(rows)
    if weights is None or weights[0] == 0 or not leaves_nothing(rows, weights):
        return None
    return float(weights[0])


def _list_states(context: Context) -> Iterator[Numbered]:
    """The wrong values of state that trained variables move along."""
    states = list_steering(context)
    return (found for found in context.list_cases() if found[1].key.variable in states)


def _take_shards(
    context: Context, is_mean: bool, replica: int | None = None
) -> dict[int, Taken]:
    """What one device makes of the own shard of each replica, or of one for all."""
    taken: dict[int, Taken] = {}
    for number, case in _list_states(context):
        key = case.key if replica is None else case.key.at(replica)
        value = context.evidence.reference.get(key)
        if value is not None and key.replica != WHOLE:
            sizes = context.get_shards(case)
            part = share_by_size(sizes)[key.replica]
            taken[number] = take_rows(value, case), part if is_mean else 1.0
    return taken


def _predict(context: Context, taken: Mapping[int, Taken]) -> dict[int, Array]:
    """The values that follow: of what moves along a state, from what that really is."""
    steering, keep = find_steering(context), _fit_keep(context, taken)
    predicted: dict[int, Array] = {}
    for number, case in context.list_cases():
        if number in taken:
            value, factor = taken[number]
            rest = (1 - factor) * keep * find_base(case)
            predicted[number] = factor * value + rest
        elif case.key.variable in steering:
            path, rate = steering[case.key.variable]
            held = context.evidence.observed.get(replace(case.key, variable=path))
            if held is not None:
                predicted[number] = find_base(case) + rate * take_rows(held, case)
    return predicted


def _fit_keep(context: Context, taken: Mapping[int, Taken]) -> float:
    """β: how much of its old value the state keeps; 0 where that does not matter."""
    rows = [
        Row(
            number=number,
            target=context.cases[number].observed - factor * value,
            features=((1 - factor) * find_base(context.cases[number]),),
        )
        for number, (value, factor) in taken.items()
    ]
    if not any(np.any(row.features[0]) for row in rows):
        return 0.0
    weights = fit_weights(rows)
    return 0.0 if weights is None else float(weights[0])
