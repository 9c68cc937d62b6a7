"""Causes in a slot's rule: applied too often, or with other numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distbench.compare.pairs import Pair
from distbench.compare.values import Array, densify, measure_norm
from distbench.diagnose.context import Context, Hypothesis
from distbench.diagnose.fit import (
    Row,
    fit_weights,
    leaves_nothing,
    list_independent,
    pick_features,
    predict_rows,
)
from distbench.diagnose.slots import name_kind, widen_base
from distbench.trace import WHOLE, TraceKey, Value


def explain_by_repetition(context: Context) -> Iterator[Hypothesis]:
    """The slot's rule applied k times in one step.

    For a rule x → βx + u, the second application adds β times what the first did:
    f(f(x)) - f(x) = β (f(x) - x). So observed - expected = λ (expected - before) with
    λ = β + … + β^(k-1); β = 1 for accumulators. β is fitted from the expected values;
    without it any λ in (0, 1] or a whole λ will do.
    """
    if context.phase != "slot":
        return
    predicted: dict[int, Array] = {}
    times: set[int] = set()
    for rows in _group_changes(context).values():
        weights = fit_weights(rows)
        if weights is None:
            return
        count = _count_times(context, rows, float(weights[0]))
        if count is None:
            return
        times.add(count)
        for number, value in predict_rows(rows, weights).items():
            predicted[number] = context.cases[number].expected + value
    if len(times) != 1 or not predicted:
        return
    count = times.pop()
    whole = _repeats_variable(context)
    yield Hypothesis(
        code="update-repeated" if whole else "slot-repeated",
        predicted=predicted,
        detail=f"the {'whole update' if whole else 'slot'} is applied {count} times in "
        "one step",
        ratio=float(count),
        phase="variable" if whole else None,
    )


def _group_changes(context: Context) -> dict[str, list[Row]]:
    kinds: dict[str, list[Row]] = {}
    for number, case in context.list_cases():
        base = widen_base(case)
        row = Row(
            number=number,
            target=case.observed - case.expected,
            features=(case.expected - base,),
        )
        kinds.setdefault(name_kind(context, case), []).append(row)
    return kinds


def _count_times(context: Context, rows: list[Row], factor: float) -> int | None:
    """How often the rule was applied, given λ."""
    most = max(8, context.replicas)
    beta = _fit_memory(context, rows)
    candidates = range(2, most + 1)
    if beta is not None and 0 < beta < 1.0001:
        for count in candidates:
            total = sum(beta**power for power in range(1, count))
            if abs(factor - total) <= 1e-3 * max(1.0, total):
                return count
        return None
    for count in candidates:
        if abs(factor - (count - 1)) <= 1e-3 * count:
            return count
    return 2 if 0 < factor < 1 else None


def _fit_memory(context: Context, rows: list[Row]) -> float | None:
    """β of expected = β · before + c · f(gradient), f the identity or the square."""
    for power in (1, 2):
        fits = []
        for row in rows:
            case = context.cases[row.number]
            owner = context.infos[case.key.variable].of
            gradient = context.find_gradient(case, owner)
            base = widen_base(case)
            if gradient is None or gradient.shape != base.shape or not np.any(base):
                continue
            features = (base, gradient**power)
            fits.append(Row(number=row.number, target=case.expected, features=features))
        weights = fit_weights(fits)
        if weights is None:
            continue
        rest = [
            np.max(np.abs(predict_rows([row], weights)[row.number] - row.target))
            <= 1e-3 * np.max(np.abs(row.target))
            for row in fits
        ]
        if all(rest):
            return float(weights[0])
    return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Move:
    """What a step did to a variable, and what it should have done.

    Attributes:
        case: The wrong slot that it comes with.
        seen: The observed step.
        due: The right one.
        features: Of the right step: the variable, its slots after it, the gradient.
        taken: The same with the observed slots.
    """

    case: Pair
    seen: Array
    due: Array
    features: tuple[Array, ...]
    taken: tuple[Array, ...]


def _repeats_variable(context: Context) -> bool:
    """Whether the model variable went further than its wrong slots alone explain.

    Where the right step is linear in the variable, its slots and the gradient, the
    observed slots say where the step should lead. Else a momentum rule moves along the
    slot, so with the slot alone repeated the step grows as the slot did; where that
    does not fit, a whole repetition is told by a step that is nearly k times as long.
    """
    moves = [m for _, case in context.list_cases() if (m := _find_move(context, case))]
    if _follow_slots(moves):
        return False
    votes = []
    for move in moves:
        some = move.case.expected != 0
        none = np.zeros_like(move.due)
        growth = np.divide(move.case.observed, move.case.expected, where=some, out=none)
        along = move.due * growth
        whole = measure_norm(move.due)
        if whole == 0:
            continue
        if measure_norm(move.seen - along) <= 1e-2 * measure_norm(move.seen):
            votes.append(False)
        else:
            votes.append(float(np.sum(move.seen * move.due)) / whole**2 > 1.2)
    return bool(votes) and sum(votes) * 2 > len(votes)


def _follow_slots(moves: Sequence[_Move]) -> bool:
    """Whether the observed slots explain the observed steps of a linear rule."""
    if not moves or len({len(move.features) for move in moves}) > 1:
        return False
    rows = [
        Row(number=number, target=move.due, features=move.features)
        for number, move in enumerate(moves)
    ]
    kept = list_independent(rows)
    rows = [pick_features(row, kept) for row in rows]
    weights = fit_weights(rows)
    if weights is None or not leaves_nothing(rows, weights):
        return False
    fits = predict_rows(
        [
            pick_features(replace(row, features=move.taken), kept)
            for row, move in zip(rows, moves, strict=True)
        ],
        weights,
    )
    return all(
        measure_norm(fits[number] - move.seen) <= 1e-2 * measure_norm(move.seen)
        for number, move in enumerate(moves)
    )


def _find_move(context: Context, case: Pair) -> _Move | None:
    evidence, owner = context.evidence, context.infos[case.key.variable].of
    key = replace(case.key, phase="variable", variable=owner)
    seen, before = (
        evidence.observed.get(key),
        evidence.get_before(key.step, "variable", owner),
    )
    wanted = _find_right(context, key)
    if seen is None or before is None or wanted is None:
        return None
    base, gradient = densify(before), context.find_gradient(case, owner)
    if base.shape != case.expected.shape:
        return None
    right, taken = [base], [base]
    for info in context.infos.values():
        if info.role == "slot" and info.of == owner and info.shape == base.shape:
            place = replace(key, phase="slot", variable=info.path)
            due, got = _find_right(context, place), evidence.observed.get(place)
            if due is not None and got is not None:
                right.append(densify(due))
                taken.append(densify(got))
    if gradient is not None and gradient.shape == base.shape:
        right.append(gradient)
        taken.append(gradient)
    return _Move(
        case=case,
        seen=densify(seen) - base,
        due=densify(wanted) - base,
        features=tuple(right),
        taken=tuple(taken),
    )


def _find_right(context: Context, key: TraceKey) -> Value | None:
    """State after the right step: of the replica's own gradient, or the reference's."""
    replay = context.evidence.replays.get("reduced_gradient")
    for trace in (replay, context.evidence.reference):
        for replica in (key.replica, WHOLE):
            value = None if trace is None else trace.get(replace(key, replica=replica))
            if value is not None:
                return value
    return None


def explain_by_memory(context: Context) -> Iterator[Hypothesis]:
    """Another β or another factor of the gradient in the slot's rule."""
    if context.phase != "slot":
        return
    for power in (1, 2):
        predicted: dict[int, Array] = {}
        for pairs in _group_by_gradient(context, power).values():
            rows = [row for row, _ in pairs]
            weights = fit_weights(rows)
            if weights is not None:
                for number, value in predict_rows(rows, weights).items():
                    predicted[number] = context.cases[number].expected + value
        if predicted:
            yield Hypothesis(
                code="hyperparameter-differs",
                predicted=predicted,
                detail="the slot's rule weighs its old value or the gradient otherwise "
                "than on one device",
            )


def explain_by_fed_factor(context: Context) -> Iterator[Hypothesis]:
    """The slot's rule takes c times the gradient: its error is in proportion to it.

    With expected = β · before + b · g^p and an error of κ g^p, c^p is 1 + κ / b.
    """
    if context.phase != "slot":
        return
    for power in (1, 2):
        predicted: dict[int, Array] = {}
        factors: list[float] = []
        for pairs in _group_by_gradient(context, power).values():
            errors = [replace(row, features=row.features[1:]) for row, _ in pairs]
            weights = fit_weights(errors)
            if weights is None:
                continue
            due = [replace(row, target=expected) for row, expected in pairs]
            if not any(np.any(row.features[0]) for row in due):
                due = [replace(row, features=row.features[1:]) for row in due]
            right = fit_weights(due)
            if right is not None and right[-1] != 0:
                whole = 1 + float(weights[0] / right[-1])
                factors.append(abs(whole) ** (1 / power))
            for number, value in predict_rows(errors, weights).items():
                predicted[number] = context.cases[number].expected + value
        if predicted:
            ratio = float(np.median(factors)) if factors else None
            words = "another multiple of" if ratio is None else f"{ratio:.6g} times"
            yield Hypothesis(
                code="scale-error",
                predicted=predicted,
                detail=f"the slot's rule takes {words} the gradient",
                ratio=ratio,
            )


def _group_by_gradient(
    context: Context, power: int
) -> dict[str, list[tuple[Row, Array]]]:
    """Errors with the features (before, gradient^power), and the expected values."""
    kinds: dict[str, list[tuple[Row, Array]]] = {}
    for number, case in context.list_cases():
        owner = context.infos[case.key.variable].of
        gradient = context.find_gradient(case, owner)
        if gradient is None or gradient.shape != case.expected.shape:
            continue
        row = Row(
            number=number,
            target=case.observed - case.expected,
            features=(widen_base(case), gradient**power),
        )
        kinds.setdefault(name_kind(context, case), []).append((row, case.expected))
    return kinds
