"""Causes in the reduction: which replicas' gradients were added up, and how often."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from distbench.compare.bounds import find_roundoff
from distbench.compare.least_squares import find_standard_errors, solve_least_squares
from distbench.compare.pair import Pair
from distbench.compare.ratio import fit_common_ratio
from distbench.compare.values import Array, densify, measure_norm, take_numbers
from distbench.diagnose.context import Context, Hypothesis, take_rows
from distbench.diagnose.fit import add_weighted
from distbench.diagnose.hypotheses.generic import is_sparse
from distbench.diagnose.names import name_replicas
from distbench.trace import GRADIENTS, SUMMED, WHOLE

_NEAR = 1e-3
"""Only asks whether fitted weights are alike, or 0; the values decide on them."""
_LOOKED_AT = 1_000
"""So many numbers, of the first ones, are enough to see that they differ."""
_TOLD = 10
"""So many standard errors are weights apart from 0, the largest of them at least."""


def predict_terms(
    context: Context, combine: Callable[[Pair, tuple[Array, ...]], Array | None]
) -> dict[int, Array]:
    """Predict every case from its replicas' own gradients."""
    predicted: dict[int, Array] = {}
    for number, case in context.list_cases():
        terms = context.find_terms(case)
        if terms:
            value = combine(case, terms)
            if value is not None:
                predicted[number] = value
    return predicted


def explain_by_missing_sum(context: Context) -> Iterator[Hypothesis]:
    """Each replica goes on with its own gradient, as it is or times N or 1/N."""
    n = context.replicas
    if context.phase not in SUMMED or n == 1:
        return
    code = name_missing_sum(context)
    some = code == "variable-not-reduced"
    rest = ", while other variables are reduced" if some else ""
    for factor, words in ((1.0, ""), (float(n), f"{n} times "), (1 / n, f"1/{n} of ")):
        yield Hypothesis(
            code=code,
            predicted=predict_terms(
                context,
                lambda case, terms, f=factor: f * terms[case.key.replica],  # type: ignore[misc]
            ),
            detail=f"each replica goes on with {words}its own gradient{rest}",
        )
    yield Hypothesis(
        code=code,
        predicted=_predict_rest(context),
        detail=f"each replica goes on with a part of the sum of its own{rest}: "
        "together they are what each should have",
    )


def _predict_rest(context: Context) -> dict[int, Array]:
    """What the other replicas leave of a sum, where they go on with other values.

    Needs no addends, which nobody knows where a replica's own gradient was not seen.
    """
    predicted: dict[int, Array] = {}
    for number, case in context.list_cases():
        seen = context.evidence.observed.get_replicas(case.key)
        values = [take_rows(value, case) for value in seen]
        if any(np.any(value != values[0]) for value in values[1:]):
            others = [v for r, v in enumerate(values) if r != case.key.replica]
            predicted[number] = case.expected - np.sum(others, axis=0)
    return predicted


def name_missing_sum(context: Context) -> str:
    """The code of gradients that nobody sums: of all variables, or of some."""
    wrong = {case.key.variable for case in context.cases}
    right = {key.variable for key in context.right} - wrong
    some = any(_shows_sum(context, variable) for variable in right)
    return "variable-not-reduced" if some else "missing-reduction"


def _shows_sum(context: Context, variable: str) -> bool:
    """Whether a sum of this variable's gradients differs from each addend."""
    for replica in range(context.replicas):
        seen = context.evidence.observed.select(
            phase="local_gradient", variable=variable, replica=replica
        )
        if not any(np.any(take_numbers(v)) for _, v in seen):
            return False
    return True


def explain_by_count(context: Context) -> Iterator[Hypothesis]:
    """The sum too often or divided: N, N², 1/N, 1/N²."""
    n = context.replicas
    if context.phase not in SUMMED or n == 1:
        return
    sparse = {
        c.key.variable for c in context.cases if is_sparse(context, c.key.variable)
    }
    only_sparse = all(case.key.variable in sparse for case in context.cases)
    dense_is_right = any(key.variable not in sparse for key in context.right)
    averaged = "mean-instead-of-sum"
    if only_sparse and dense_is_right:
        averaged = "sparse-averaged"
    for code, factor, words in (
        ("double-reduction", n, f"the sum is {n} times too large: N = {n}"),
        (averaged, 1 / n, f"the sum is divided by the number of replicas, N = {n}"),
        ("double-reduction", n**2, f"the sum is N² = {n**2} times too large"),
        (averaged, 1 / n**2, f"the sum is divided by N² = {n**2}"),
    ):
        yield Hypothesis(
            code=code,
            predicted={i: factor * case.expected for i, case in context.list_cases()},
            detail=words,
            ratio=float(factor),
            of_due=True,
        )


def explain_by_subset(context: Context) -> Iterator[Hypothesis]:
    """A sum over some of the replicas, or the mean of some of them times N."""
    n = context.replicas
    if context.phase not in SUMMED or n == 1:
        return
    for kept, lost in list_subsets(context):
        for factor, words in ((1.0, ""), (n / len(kept), ", scaled to make up for it")):
            yield Hypothesis(
                code="replica-dropped",
                predicted=predict_terms(
                    context,
                    lambda _, terms, k=kept, f=factor: (  # type: ignore[misc]
                        f * np.sum([terms[r] for r in k], axis=0)
                    ),
                ),
                detail=f"the sum lacks the gradient of {name_replicas(lost)}{words}",
                replicas=lost,
            )


def list_subsets(
    context: Context,
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The replicas that a sum may be of, and those that it then lacks."""
    for kept in _list_kept(context):
        yield kept, tuple(r for r in range(context.replicas) if r not in kept)


def _list_kept(context: Context) -> Iterator[tuple[int, ...]]:
    """Every strict subset for few replicas; else what a fit and single losses say."""
    n = context.replicas
    everyone = range(n)
    if n <= 4:
        for size in range(n - 1, 0, -1):
            yield from itertools.combinations(everyone, size)
        return
    for lost in everyone:
        yield tuple(r for r in everyone if r != lost)
    weights = fit_weights(context)
    if weights is not None:
        kept = tuple(r for r in everyone if weights[r] > 0.5 * np.max(weights))
        if 0 < len(kept) < n - 1:
            yield kept
    for first in everyone:
        yield (first,)


def fit_weights(context: Context) -> Array | None:
    """Weight of each replica in the observed sum, over all wrong values together."""
    stacked = _stack_terms(context)
    return None if stacked is None else solve_least_squares(*stacked)


def _stack_terms(context: Context) -> tuple[Array, Array] | None:
    """The addends of all wrong values, [numbers, replicas], and what was observed.

    Every value weighs alike; None where there are too few numbers.
    """
    columns: list[Array] = []
    seen: list[Array] = []
    for _, case in context.list_cases():
        terms = context.find_terms(case)
        if terms:
            scale = max(float(np.max(np.abs(case.expected), initial=0.0)), 1e-300)
            columns.append(np.stack([t.ravel() for t in terms], axis=1) / scale)
            seen.append(case.observed.ravel() / scale)
    if not columns:
        return None
    matrix = np.concatenate(columns)
    # Replicas that have the same sum tell it once.
    different = np.unique(matrix[np.any(matrix != 0, axis=1)][:_LOOKED_AT], axis=0)
    if different.shape[0] < 2 * matrix.shape[1]:
        return None
    return matrix, np.concatenate(seen)


def _fit_told(context: Context) -> Array | None:
    """The same weights, if what was observed tells them.

    Where replicas have nearly the same gradients, huge weights that cancel explain
    whatever is wrong.
    """
    stacked = _stack_terms(context)
    weights = None if stacked is None else solve_least_squares(*stacked)
    if stacked is None or weights is None:
        return None
    roundoff = max(find_roundoff(case.dtype) for _, case in context.list_cases())
    errors = find_standard_errors(*stacked, weights, roundoff)
    return weights if np.all(_TOLD * errors <= np.max(np.abs(weights))) else None


def explain_by_weights(context: Context) -> Iterator[Hypothesis]:
    """Another weight for each replica: 1/n_r, or whatever was fitted."""
    n = context.replicas
    if context.phase not in SUMMED or n == 1:
        return
    if context.is_uneven:
        yield Hypothesis(
            code="mean-of-means",
            predicted=_predict_weighted(
                context, lambda case: _weigh_alike(context.get_shards(case))
            ),
            detail="every shard weighs 1/N, whatever its size",
        )
    fitted = _fit_told(context)
    if fitted is not None:
        words = ", ".join(f"{w:.7g}" for w in fitted)
        off = np.abs(fitted - 1)
        is_lost = np.abs(fitted) <= _NEAR * np.max(np.abs(fitted))
        kept = fitted[~is_lost]
        if np.any(is_lost) and np.ptp(kept) <= _NEAR * np.max(np.abs(kept)):
            lost = tuple(int(r) for r in np.flatnonzero(is_lost))
            yield Hypothesis(
                code="replica-dropped",
                predicted=_predict_weighted(context, lambda _: list(fitted)),
                detail=f"the sum lacks the gradient of {name_replicas(lost)}, and "
                f"is {np.mean(kept):.7g} times that of the others",
                replicas=lost,
            )
        yield Hypothesis(
            code="scale-error",
            predicted=_predict_weighted(context, lambda _: list(fitted)),
            detail=f"the replicas' gradients weigh {words} in place of 1 each",
            replicas=tuple(int(r) for r in np.flatnonzero(2 * off > off.max())),
        )


def explain_by_scaled_own(context: Context) -> Iterator[Hypothesis]:
    """Each replica goes on with its own gradient, times a number that is fitted."""
    if context.phase not in SUMMED or context.replicas == 1:
        return
    own = predict_terms(context, lambda case, terms: terms[case.key.replica])
    fit = fit_common_ratio(
        (context.cases[number].observed, term) for number, term in own.items()
    )
    if fit is not None:
        yield Hypothesis(
            code=name_missing_sum(context),
            predicted={number: fit.ratio * term for number, term in own.items()},
            detail=f"each replica goes on with {fit.ratio:.7g} times its own gradient",
        )


def _weigh_alike(shards: Sequence[int]) -> list[float]:
    """Factors that let every shard weigh 1/N, from its share n_r/G."""
    return [sum(shards) / (len(shards) * max(1, size)) for size in shards]


def _predict_weighted(
    context: Context, weigh: Callable[[Pair], Sequence[float]]
) -> dict[int, Array]:
    return predict_terms(
        context,
        lambda case, terms: add_weighted(weigh(case), terms),
    )


def explain_by_pairing(context: Context) -> Iterator[Hypothesis]:
    """Another variable's gradient, on all replicas or on some."""
    if context.phase not in GRADIENTS:
        return
    everyone = tuple(range(context.replicas))
    groups = [everyone]
    if context.phase in SUMMED and len(everyone) > 1:
        groups += [(r,) for r in everyone]
        if len(everyone) > 2:
            groups += [tuple(r for r in everyone if r != one) for one in everyone]
    for group in groups:
        predicted: dict[int, Array] = {}
        words: set[str] = set()
        for number, case in context.list_cases():
            found = _find_partner(context, case, group)
            if found is not None:
                predicted[number] = found[1]
                words.add(f"'{case.key.variable}' gets that of '{found[0]}'")
        if predicted:
            who = ""
            if len(group) < len(everyone):
                who = f" of {name_replicas(group)}"
            yield Hypothesis(
                code="wrong-pairing",
                predicted=predicted,
                detail=f"the gradients{who} are paired with other variables: "
                + ", ".join(sorted(words)[:3]),
                replicas=group if len(group) < len(everyone) else None,
            )


def _find_partner(
    context: Context, case: Pair, group: tuple[int, ...]
) -> tuple[str, Array] | None:
    """The variable whose gradient explains most of a case, and the value then."""
    is_local = context.phase == "local_gradient"
    if case.rows is not None or (is_local and case.key.replica == WHOLE):
        return None
    own = () if is_local else context.find_terms(case)
    if not (own or is_local):
        return None
    kept = sum((own[r] for r in range(len(own)) if r not in group), np.zeros(()))
    wanted = case.observed - kept
    size, least = measure_norm(wanted), measure_norm(case.observed - case.expected)
    found: tuple[str, Array] | None = None
    for path in _list_by_size(context).get(case.observed.size, ()):
        if path == case.key.variable:
            continue
        take = partial(_take_partner, context, case, path, group)
        place = case.key if is_local else case.key.at(WHOLE)
        norm = context.work_out(
            ("partner", place.step, place.call, place.replica, path, group),
            partial(_measure, take),
        )
        # Nearer than its norm no value is. To read the gradients of all others takes a
        # large model's diagnosis long.
        if abs(norm - size) >= least or (value := take()).size != wanted.size:
            continue
        value = value.reshape(wanted.shape)
        left = measure_norm(wanted - value)
        if left < least:
            least, found = left, (path, kept + value)
    return found


def _measure(take: Callable[[], Array]) -> float:
    return measure_norm(take())


def _list_by_size(context: Context) -> Mapping[int, Sequence[str]]:
    """The model's variables by how many elements they have."""

    def sort() -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for path, info in context.infos.items():
            if info.role == "variable":
                found.setdefault(math.prod(info.shape), []).append(path)
        return found

    return context.work_out("variables by size", sort)


def _take_partner(
    context: Context, case: Pair, path: str, group: tuple[int, ...]
) -> Array:
    """What some replicas' gradients of a variable come to; empty where none was seen.

    Of local ones what this replica should have had for it.
    """
    if context.phase == "local_gradient":
        value = context.evidence.reference.get(replace(case.key, variable=path))
        return np.zeros(0) if value is None else densify(value)
    terms = context.find_terms_of(case, path)
    return np.sum([terms[r] for r in group], axis=0) if terms else np.zeros(0)
