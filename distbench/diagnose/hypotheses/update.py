"""Causes in the update of the model variables and of the step counter."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.diagnose.clues.cases import find_base
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import (
    Row,
    fit_weights,
    leaves_nothing,
    make_error,
    pick_features,
    predict_cases,
)
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.reduction import list_subsets
from distbench.diagnose.names import name_replicas
from distbench.trace.numbers import Array, densify

MEANT = 1e-4
"""Only asks which number a fitted one is; whether anything is wrong is decided."""


def explain_by_unseen_sum(context: Context) -> Iterator[Hypothesis]:
    """No reduced gradient was seen, and the step is that of some replicas' gradients.

    Who sums and updates by hand shows local gradients and variables alone. Where the
    right step is a multiple of the sum of the local gradients, the same multiple of one
    replica's own gradient, or of a part of the sum, is told from it.
    """
    n = context.replicas
    if context.phase != "variable" or n == 1:
        return
    terms = {
        number: context.find_terms_of(case, case.key.variable)
        for number, case in context.list_cases()
        if context.find_gradient(case) is None
    }
    rows = [
        Row(
            number=number,
            target=context.cases[number].expected - find_base(context.cases[number]),
            features=(np.asarray(np.sum(found, axis=0)),),
        )
        for number, found in terms.items()
        if found and found[0].shape == context.cases[number].expected.shape
    ]
    weights = fit_weights(rows)
    if weights is None or not leaves_nothing(rows, weights):
        return
    rate = float(weights[0])

    def predict(choose: Callable[[int], tuple[int, ...]]) -> dict[int, Array]:
        found = {}
        for row in rows:
            case = context.cases[row.number]
            kept = choose(case.key.replica)
            step = rate * np.sum([terms[row.number][r] for r in kept], axis=0)
            found[row.number] = find_base(case) + step
        return found

    yield Hypothesis(
        code="missing-reduction",
        predicted=predict(lambda replica: (replica,)),
        detail="each replica's step is that of its own gradient",
    )
    yield Hypothesis(
        code="mean-instead-of-sum",
        predicted={
            row.number: find_base(context.cases[row.number]) + row.target / n
            for row in rows
        },
        detail=f"the step is 1/{n} of that of the sum: it is divided by N = {n}",
        ratio=1 / n,
    )
    for kept, lost in list_subsets(context):
        yield Hypothesis(
            code="replica-dropped",
            predicted=predict(lambda _, kept=kept: kept),  # type: ignore[misc]
            detail=f"the step lacks the gradient of {name_replicas(lost)}",
            replicas=lost,
        )


def explain_by_momentum(context: Context) -> Iterator[Hypothesis]:
    """What is too much is proportional to a slot as it was before the step."""
    if context.phase != "variable":
        return
    for kind in _list_kinds(context):
        find = partial(_find_slot, context, kind, before=True)
        fitted = fit_feature(context, find)
        if fitted is None:
            continue
        weight, predicted = fitted
        along = sum(
            float(np.sum((case.expected - case.base) * feature))
            for _, case in context.list_cases()
            if (feature := find(case)) is not None
            and feature.shape == case.expected.shape
        )
        more = weight * along > 0
        yield Hypothesis(
            code="momentum-repeated" if more else "hyperparameter-differs",
            predicted=predicted,
            detail=f"the step moves by {abs(weight):.3g} times the slot "
            f"'{kind}' {'too far' if more else 'too little'}",
        )


def explain_by_new_momentum(context: Context) -> Iterator[Hypothesis]:
    """What is too much is proportional to a slot as the step left it.

    Where the right step is a · slot + b · gradient, as Nesterov's is, the first part
    alone may be taken k times. Where it is a · slot, that is a step k times as long.
    """
    if context.phase != "variable":
        return
    for kind in _list_kinds(context):
        fitted = fit_feature(context, partial(_find_slot, context, kind))
        part = None if fitted is None else _fit_part(context, kind)
        if fitted is None or part is None:
            continue
        times = 1 + fitted[0] / part
        count = round(times)
        again = count > 1 and math.isclose(times, count, rel_tol=MEANT)
        yield Hypothesis(
            code="momentum-repeated" if again else "hyperparameter-differs",
            predicted=fitted[1],
            detail=f"the step takes {count if again else f'{times:.6g}'} times what it "
            f"should of the slot '{kind}', and once what it takes of the gradient",
            ratio=times,
        )


def _list_kinds(context: Context) -> list[str]:
    """What the optimizer calls the slots of variables."""
    infos = context.infos.values()
    return sorted({info.kind for info in infos if info.role == "slot" and info.of})


def _find_slot(
    context: Context, kind: str, case: Pair, *, before: bool = False
) -> Array | None:
    """A variable's slot as the step left it, or as it was before."""
    slots = context.work_out(
        "slots by kind",
        lambda: {(info.of, info.kind): path for path, info in context.infos.items()},
    )
    path = slots.get((case.key.variable, kind))
    if path is None:
        return None
    value = (
        context.evidence.get_before(case.key.step, "slot", path)
        if before
        else context.evidence.observed.get(
            replace(case.key, phase="slot", variable=path)
        )
    )
    return None if value is None else densify(value)


def _fit_part(context: Context, kind: str) -> float | None:
    """How many times a slot is in the right step, beside a multiple of the gradient.

    None unless both are in it.
    """
    rows = []
    for number, case in context.list_cases():
        slot = _find_slot(context, kind, case)
        gradient = context.find_due_gradient(case, case.key.variable)
        step = case.expected - find_base(case)
        if slot is None or gradient is None:
            return None
        if not slot.shape == gradient.shape == step.shape:
            return None
        rows.append(Row(number=number, target=step, features=(slot, gradient)))
    weights = fit_weights(rows)
    if weights is None or not leaves_nothing(rows, weights):
        return None
    slot_only = [pick_features(row, (0,)) for row in rows]
    alone = fit_weights(slot_only)
    if weights[0] == 0 or (alone is not None and leaves_nothing(slot_only, alone)):
        return None
    return float(weights[0])


def explain_by_stillness(context: Context) -> Iterator[Hypothesis]:
    """Copies on some replicas that do not take the step which other copies take.

    Of each variable these may be other replicas, as where each one updates a part of
    the variables and nobody hands on what it made.
    """
    if context.phase != "variable":
        return
    moved = {(key.step, key.call, key.variable) for key in context.right}
    still = {
        number: case
        for number, case in context.list_cases()
        if (case.key.step, case.key.call, case.key.variable) in moved
    }
    of_variables: dict[frozenset[int], str] = {}
    for path in dict.fromkeys(case.key.variable for case in still.values()):
        wrong = [c.key.replica for c in still.values() if c.key.variable == path]
        of_variables.setdefault(frozenset(wrong), path)
    if not of_variables:
        return
    told = [
        f"of {name_replicas(wrong)}"
        if len(of_variables) == 1
        else f"'{path}' of {name_replicas(wrong)}"
        for wrong, path in of_variables.items()
    ]
    yield Hypothesis(
        code="replicas-diverged",
        predicted={number: find_base(case) for number, case in still.items()},
        detail=f"the variable {' and '.join(told)} takes no update while others do",
    )


def explain_by_divergence(context: Context) -> Iterator[Hypothesis]:
    """The replicas make different things of the same, and nothing is known of why."""
    if context.phase not in ("applied_gradient", "variable"):
        return
    replicas = {case.key.replica for case in context.cases}
    observed = context.evidence.observed
    # One copy for all replicas, as under parameter servers, goes apart from none.
    if not any(
        observed.get(case.key.at(replica)) is not None
        for case in context.cases
        for replica in {*range(context.replicas)} - replicas
    ):
        return
    what = "variable" if context.phase == "variable" else "applied gradient"
    yield Hypothesis(
        code="replicas-diverged",
        predicted={number: case.observed for number, case in context.list_cases()},
        detail=f"the {what} of {name_replicas(replicas)} is not what the gradient "
        "before it gives, so the replicas go apart",
    )


def explain_by_counter(context: Context) -> Iterator[Hypothesis]:
    """The step counter advances by another number."""
    if context.phase != "iterations":
        return
    steps = {
        float(np.sum(case.observed - case.base)) for _, case in context.list_cases()
    }
    due = {float(np.sum(case.expected - case.base)) for _, case in context.list_cases()}
    words = "/".join(f"{step:g}" for step in sorted(steps))
    wanted = "/".join(f"{step:g}" for step in sorted(due))
    yield Hypothesis(
        code="iterations-wrong",
        predicted={number: case.observed for number, case in context.list_cases()},
        detail=f"the counter advances by {words} a step where {wanted} is due",
    )


def fit_feature(
    context: Context,
    find: Callable[[Pair], Array | None],
    steps: Collection[int] = (),
) -> tuple[float, dict[int, Array]] | None:
    """Fit observed - expected by one feature with one weight over all cases.

    Args:
        context: The wrong values.
        find: The feature of each.
        steps: The steps whose cases are fitted; all if empty.
    """
    rows = []
    for number, case in context.list_cases():
        feature = find(case)
        if steps and case.key.step not in steps:
            continue
        if feature is not None and feature.shape == case.expected.shape:
            rows.append(make_error(number, case, feature))
    weights = fit_weights(rows)
    if weights is None:
        return None
    return float(weights[0]), predict_cases(context.cases, rows, weights)
