"""Another number in what a step is divided by, as an epsilon that follows N."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.diagnose.clues.cases import find_base
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import Row, fit_weights, leaves_nothing
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace.numbers import Array, densify

Take = Callable[[Context, Pair], Array | None]
"""What is divided, of a variable's step; None where it is not known."""


def explain_by_denominator(context: Context) -> Iterator[Hypothesis]:
    """The steps have one number more below the fraction: r x / (q + e), with another e.

    With d due and d' seen, x/d' - x/d is Δe/r, and with e below a root x²/d'² - x²/d²
    is Δe/r²: one number for all elements, at least of a step. q is not needed, and x is
    the gradient or one of the slots.
    """
    if context.phase != "variable":
        return
    steps = sorted({case.key.step for case in context.cases})
    groupings = [[steps], [[step] for step in steps]][: len(steps)]
    taken = (_take_gradient, *_list_slots(context))
    for groups, take, power in itertools.product(groupings, taken, (1, 2)):
        predicted: dict[int, Array] = {}
        added: list[float] = []
        for group in groups:
            found = _predict(context, partial(take, context), power, group)
            predicted |= {number: value for number, (value, _) in found.items()}
            added += [more for _, more in found.values()]
        if predicted:
            more = "larger" if sum(added) > 0 else "smaller"
            root = ", below the root," if power == 2 else ""
            yield Hypothesis(
                code="hyperparameter-differs",
                predicted=predicted,
                detail=f"what the step is divided by is{root} {more} by the same "
                "number for all elements, as with another epsilon",
            )


def _predict(
    context: Context,
    take: Callable[[Pair], Array | None],
    power: int,
    steps: Sequence[int],
) -> dict[int, tuple[Array, float]]:
    """What one number more leaves of some steps, and by what share it adds to them."""
    rows: list[Row] = []
    due: dict[int, tuple[Array, Array]] = {}
    for number, case in context.list_cases():
        divided = take(case) if case.key.step in steps else None
        if divided is None or divided.shape != case.expected.shape:
            continue
        step, seen = case.expected - find_base(case), case.observed - find_base(case)
        share = np.divide(step, divided, out=np.zeros_like(step), where=divided != 0)
        due[number] = step, share**power
        feature = share**power * seen**power
        rows.append(
            Row(number=number, target=step**power - seen**power, features=(feature,))
        )
    weights = fit_weights(rows)
    if weights is None or not leaves_nothing(rows, weights):
        return {}
    predicted: dict[int, tuple[Array, float]] = {}
    for number, (step, share) in due.items():
        below = 1 + float(weights[0]) * share
        if not np.all(below > 0):
            return {}
        left = find_base(context.cases[number]) + step / below ** (1 / power)
        predicted[number] = left, float(np.mean(below - 1))
    return predicted


def _take_gradient(context: Context, case: Pair) -> Array | None:
    return context.find_due_gradient(case, case.key.variable)


def _list_slots(context: Context) -> Iterator[Take]:
    """The first slot of each variable, the second ones, and so on."""
    owned: dict[str, list[str]] = {}
    for info in context.infos.values():
        if info.role == "slot" and info.of:
            owned.setdefault(info.of, []).append(info.path)
    for place in range(max(map(len, owned.values()), default=0)):

        def take(context: Context, case: Pair, place: int = place) -> Array | None:
            paths = owned.get(case.key.variable, ())
            if place >= len(paths):
                return None
            key = replace(case.key, phase="slot", variable=paths[place])
            value = context.evidence.observed.get(key)
            return None if value is None else densify(value)

        yield take
