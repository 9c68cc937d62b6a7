"""Causes in the optimizer's slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from distbench.compare.pairs import Pair
from distbench.compare.values import Array, densify
from distbench.diagnose.context import Context, Hypothesis
from distbench.diagnose.fit import Row, fit_weights, predict_rows
from distbench.trace import TraceKey, Value


def explain_by_local_gradient(context: Context) -> Iterator[Hypothesis]:
    """The update was fed with the replica's own gradient in place of the reduced one.

    Where the one-device update was replayed with the local gradients, its result is the
    prediction. Else the slot's error must be proportional to f(g_r) - f(Σ g) for f the
    identity or the square (first and second moments), or to the same with the mean of
    f over the replicas.
    """
    if context.phase not in ("slot", "variable") or context.replicas == 1:
        return
    code = "slot-from-local-gradient"
    if context.phase == "variable":
        code = "missing-reduction"
    words = "it follows from the replica's own gradient, not from the reduced one"
    replay = context.evidence.replays.get("local_gradient")
    if replay is not None:
        predicted = {}
        for number, case in context.list_cases():
            value = replay.get(case.key)
            if value is not None:
                predicted[number] = densify(value)
        yield Hypothesis(code=code, predicted=predicted, detail=words)
    if context.phase == "variable":
        return
    for make in FEATURES:
        yield from _fit_feature(
            context,
            make,
            code,
            f"{words} (its error is proportional to the difference)",
        )


Feature = Callable[[tuple[Array, ...], int, Array], Array]


def _own(terms: tuple[Array, ...], replica: int, total: Array) -> Array:
    return terms[replica] - total


def _own_times(terms: tuple[Array, ...], replica: int, total: Array) -> Array:
    return len(terms) * terms[replica] - total


def _own_square_times(terms: tuple[Array, ...], replica: int, total: Array) -> Array:
    return np.asarray((len(terms) * terms[replica]) ** 2 - total**2)


def _own_square(terms: tuple[Array, ...], replica: int, total: Array) -> Array:
    return np.asarray(terms[replica] ** 2 - total**2)


def _own_size(terms: tuple[Array, ...], replica: int, total: Array) -> Array:
    return np.asarray(np.abs(terms[replica]) - np.abs(total))


def _mean_square(terms: tuple[Array, ...], replica: int, total: Array) -> Array:
    del replica
    return np.asarray(np.mean([t**2 for t in terms], axis=0) - total**2)


def _sum_square(terms: tuple[Array, ...], replica: int, total: Array) -> Array:
    del replica
    return np.asarray(np.sum([t**2 for t in terms], axis=0) - total**2)


FEATURES: tuple[Feature, ...] = (
    _own,
    _own_square,
    _own_times,
    _own_square_times,
    _own_size,
    _mean_square,
    _sum_square,
)
"""What a slot may have been fed with, less what it should have been fed with."""


def _fit_feature(
    context: Context, make: Feature, code: str, words: str
) -> Iterator[Hypothesis]:
    """One factor for each kind of slot: those whose names differ by the variable."""
    kinds: dict[str, list[Row]] = {}
    for number, case in context.list_cases():
        owner = context.infos[case.key.variable].of
        terms = _find_locals(context, case, owner)
        gradient = context.find_gradient(case, owner) if owner else None
        if not terms or gradient is None or gradient.shape != case.observed.shape:
            continue
        feature = make(terms, case.key.replica, gradient)
        kinds.setdefault(_name_kind(context, case), []).append(
            Row(
                number=number, target=case.observed - case.expected, features=(feature,)
            )
        )
    predicted: dict[int, Array] = {}
    for rows in kinds.values():
        weights = fit_weights(rows)
        if weights is not None:
            for number, value in predict_rows(rows, weights).items():
                predicted[number] = context.cases[number].expected + value
    if predicted:
        yield Hypothesis(code=code, predicted=predicted, detail=words)


def _find_locals(context: Context, case: Pair, owner: str) -> tuple[Array, ...]:
    key = TraceKey(step=case.key.step, phase="local_gradient", variable=owner)
    observed = context.evidence.observed
    for call in range(3):
        found: list[Value | None] = [
            observed.get(replace(key, replica=r, call=call))
            for r in range(context.replicas)
        ]
        values = [densify(value) for value in found if value is not None]
        if len(values) == context.replicas and all(
            value.shape == case.observed.shape for value in values
        ):
            return tuple(values)
    return ()


def _name_kind(context: Context, case: Pair) -> str:
    """A slot's path without its variable's: what the optimizer calls the slot.

    Only groups values for a common fit; a path that does not hold the variable's is a
    group of its own.
    """
    path = case.key.variable
    owner = context.infos[path].of
    return path.replace(owner, "*") if owner else path


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
        base = _widen(case)
        row = Row(
            number=number,
            target=case.observed - case.expected,
            features=(case.expected - base,),
        )
        kinds.setdefault(_name_kind(context, case), []).append(row)
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
            base = _widen(case)
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


def _repeats_variable(context: Context) -> bool:
    """Whether the model variable went further than its wrong slot alone explains.

    A momentum rule moves the variable along the slot, so with the slot alone repeated
    the step grows as the slot did. Where that does not fit, a whole repetition is told
    by the counter of steps, or by a step that is nearly k times as long.
    """
    evidence = context.evidence
    votes = []
    for _, case in context.list_cases():
        owner = context.infos[case.key.variable].of
        key = replace(case.key, phase="variable", variable=owner)
        seen, before = (
            evidence.observed.get(key),
            evidence.get_before(key.step, "variable", owner),
        )
        replays = (evidence.replays.get("reduced_gradient"), evidence.reference)
        wanted = next(
            (
                found
                for trace in replays
                for replica in (key.replica, -1)
                if trace is not None
                and (found := trace.get(replace(key, replica=replica))) is not None
            ),
            None,
        )
        if seen is None or before is None or wanted is None:
            continue
        moved = densify(seen) - densify(before)
        due = densify(wanted) - densify(before)
        if moved.shape != case.expected.shape:
            continue
        along = due * np.divide(
            case.observed, case.expected, where=case.expected != 0, out=0 * due
        )
        whole = float(np.linalg.norm(due))
        if whole == 0:
            continue
        if float(np.linalg.norm(moved - along)) <= 1e-2 * float(np.linalg.norm(moved)):
            votes.append(False)
        else:
            votes.append(float(np.sum(moved * due)) / whole**2 > 1.2)
    return bool(votes) and sum(votes) * 2 > len(votes)


def explain_by_start(context: Context) -> Iterator[Hypothesis]:
    """A slot made in the first step starts from another constant."""
    if context.phase != "slot" or any(case.key.step > 0 for case in context.cases):
        return
    predicted = {}
    for number, case in context.list_cases():
        offset = case.observed - case.expected
        if np.ndim(case.base) == 0 and offset.size:
            predicted[number] = case.expected + float(np.mean(offset))
    if predicted:
        yield Hypothesis(
            code="slot-initial",
            predicted=predicted,
            detail="the slot starts from another value than on one device",
        )


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
            features=(_widen(case), gradient**power),
        )
        kinds.setdefault(_name_kind(context, case), []).append((row, case.expected))
    return kinds


def explain_by_stillness(context: Context) -> Iterator[Hypothesis]:
    """Some replicas' slots do not take the update."""
    if context.phase != "slot" or not _are_some(context):
        return
    yield Hypothesis(
        code="slot-not-synchronized",
        predicted={number: _widen(case) for number, case in context.list_cases()},
        detail="the slot takes no update there while other replicas' slots do",
    )


def explain_by_own_way(context: Context) -> Iterator[Hypothesis]:
    """The replicas' slots differ, and nothing is known of why."""
    if context.phase != "slot" or context.replicas == 1:
        return
    if _are_some(context) or _differ_by_replica(context):
        yield Hypothesis(
            code="slot-not-synchronized",
            predicted={number: case.observed for number, case in context.list_cases()},
            detail="the replicas' slots are meant to be equal and are not",
        )


def _are_some(context: Context) -> bool:
    """Whether only some of the replicas that hold the slots are wrong."""
    wrong = {case.key.replica for case in context.cases}
    return bool({key.replica for key in context.right} - wrong)


def _differ_by_replica(context: Context) -> bool:
    seen: dict[tuple[int, str], Array] = {}
    for case in context.cases:
        key = (case.key.step, case.key.variable)
        if not np.array_equal(seen.setdefault(key, case.observed), case.observed):
            return True
    return False


def _widen(case: Pair) -> Array:
    """The state before the step, 0 where it is not known, in the shape of the case."""
    return np.array(np.broadcast_to(np.asarray(case.base), case.expected.shape))
