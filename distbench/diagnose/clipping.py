"""Clipping before the reduction: Σ clip(g_r) in place of clip(Σ g_r)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from distbench.compare.values import Array, measure_norm, measure_size
from distbench.diagnose.addends import (
    PHASES,
    Source,
    is_plain_sum,
    list_known,
    list_sources,
)
from distbench.diagnose.context import Context, Hypothesis, find_tolerance
from distbench.diagnose.fit import Row, fit_weights
from distbench.diagnose.norms import (
    GlobalNorm,
    Measure,
    Norm,
    SliceNorm,
    TensorNorm,
    VariableNorm,
)
from distbench.diagnose.reduction import name_missing_sum


def _predict_small(
    context: Context, clip: Callable[[Source, Array], Array]
) -> dict[int, Array]:
    """Sums of addends that all were too small to be clipped, unlike the sums.

    Nothing was done to them, which is wrong only if one device clips the sum: that it
    came to what the same clip makes of it shows that it does.
    """
    found: dict[int, Array] = {}
    for source in list_known(context):
        total = np.sum(source.terms, axis=0)
        if context.phase == "reduced_gradient" and is_plain_sum(
            context, source.case, source.terms
        ):
            rest = np.abs(source.case.expected - clip(source, total))
            if np.all(rest <= find_tolerance(source.case, context.replicas)):
                found[source.number] = total
    return found


def explain_by_clipped_norm(context: Context) -> Iterator[Hypothesis]:
    """Each replica's gradient scaled down to a norm, by tensor or over all of them.

    The weight w_r of each addend is fitted. Under the hypothesis w_r ‖g_r‖ is the same
    number c wherever w_r < 1, or the same share of the variable's norm; with that c
    every weight is predicted anew.
    """
    if context.phase not in PHASES:
        return
    sources = list_sources(context)
    n = context.replicas
    for words, measure in _list_norms(context):
        for mean in (1.0,) if n == 1 else (1.0, 1.0 / n):
            limit = _find_limit(sources, measure, mean)
            if limit is None:
                continue
            predicted = {
                source.number: _sum_clipped(source, measure, limit, mean)
                for source in sources
            }
            small = _predict_small(context, _make_clip(measure, limit))
            yield Hypothesis(
                code="clip-before-reduction",
                predicted={**predicted, **small},
                detail=f"every replica clips {words.format(limit)} before the "
                "replicas' gradients are added up",
            )


def explain_by_own_clip(context: Context) -> Iterator[Hypothesis]:
    """Each replica goes on with its own gradient, clipped; nobody sums."""
    if context.phase != "reduced_gradient" or context.replicas == 1:
        return
    sources = list_sources(context, own=True)
    code = name_missing_sum(context)
    for words, measure in _list_norms(context):
        limit = _find_limit(sources, measure, 1.0)
        if limit is not None:
            yield Hypothesis(
                code=code,
                predicted={
                    s.number: _sum_clipped(s, measure, limit, 1.0) for s in sources
                },
                detail=f"each replica clips {words.format(limit)} and goes on with "
                "what it has",
            )
    value = _fit_limit(sources)
    if value is not None:
        yield Hypothesis(
            code=code,
            predicted={s.number: _sum_limited(s, value) for s in sources},
            detail=f"each replica clips its gradient's elements to ±{value:.6g} and "
            "goes on with what it has",
        )


def _list_norms(context: Context) -> Iterator[tuple[str, Norm]]:
    yield "the norm of each variable's gradient to {:.6g}", TensorNorm()
    yield "the norm of each variable's gradient to {:.6g}", SliceNorm(context)
    yield "the global norm of each replica's gradients to {:.6g}", GlobalNorm(context)
    yield (
        "the norm of each variable's gradient to {:.6g} times that of the variable",
        VariableNorm(context),
    )


def _find_limit(
    sources: Sequence[Source], measure: Measure, mean: float
) -> float | None:
    """The common norm of all addends that were scaled down."""
    limits = []
    for source in filter(lambda source: source.arrived, sources):
        row = Row(
            number=source.number, target=source.case.observed, features=source.terms
        )
        weights = fit_weights([row])
        if weights is None:
            continue
        for place, weight in enumerate(weights / mean):
            if 0 < weight < 1 - 1e-3:
                limits.append(weight * measure(source, place))
    return float(np.median(limits)) if limits else None


def _sum_clipped(source: Source, measure: Measure, limit: float, mean: float) -> Array:
    total = np.zeros_like(source.case.expected)
    for place, term in enumerate(source.terms):
        norm = measure(source, place)
        total = total + (min(1.0, limit / norm) if norm > 0 else 1.0) * mean * term
    return total


def _make_clip(measure: Norm, limit: float) -> Callable[[Source, Array], Array]:
    """What limits a sum; one whose norm in the rule is not known is left as it is."""

    def clip(source: Source, total: Array) -> Array:
        norm = measure.relate(source, measure_norm(total))
        if norm is None or not norm > 0:
            return total
        return total * min(1.0, limit / norm)

    return clip


def explain_by_clipped_value(context: Context) -> Iterator[Hypothesis]:
    """Each element of each replica's gradient limited to [-c, c].

    Σ_r clip(g_r, c) is piecewise linear in c: Newton's iteration on the least-squares
    error, from several starts.
    """
    if context.phase not in PHASES:
        return
    sources = list_sources(context)
    limit = _fit_limit(sources)
    if limit is None:
        return
    yield Hypothesis(
        code="clip-before-reduction",
        predicted={
            **{s.number: _sum_limited(s, limit) for s in sources},
            **_predict_small(context, lambda _, total: np.clip(total, -limit, limit)),
        },
        detail=f"every replica clips its gradient's elements to ±{limit:.6g} before "
        "the replicas' gradients are added up",
    )


def _fit_limit(sources: Sequence[Source]) -> float | None:
    """The limit of the elements that leaves least; None if it would limit nothing."""
    sources = [source for source in sources if source.arrived]
    if not sources:
        return None
    sizes = np.concatenate([np.abs(t).ravel() for s in sources for t in s.terms])
    starts = [float(q) for q in np.quantile(sizes, (0.3, 0.5, 0.7, 0.9, 0.97))]
    starts.append(max(measure_size(s.case.observed) for s in sources))
    best: tuple[float, float] | None = None
    for start in starts:
        limit = _refine_limit(sources, start)
        rest = sum(
            float(np.sum((s.case.observed - _sum_limited(s, limit)) ** 2))
            for s in sources
        )
        if limit > 0 and (best is None or rest < best[0]):
            best = (rest, limit)
    if best is None or best[1] >= float(sizes.max()):
        return None
    return best[1]


def _sum_limited(source: Source, limit: float) -> Array:
    return np.asarray(np.sum([np.clip(t, -limit, limit) for t in source.terms], axis=0))


def _refine_limit(sources: Sequence[Source], limit: float) -> float:
    for _ in range(25):
        upper = lower = 0.0
        for source in sources:
            slopes = [np.sign(t) * (np.abs(t) > limit) for t in source.terms]
            slope = np.sum(slopes, axis=0)
            rest = source.case.observed - _sum_limited(source, limit)
            upper += float(np.sum(rest * slope))
            lower += float(np.sum(slope * slope))
        if lower == 0:
            break
        move = upper / lower
        limit = max(limit + move, 0.0)
        if abs(move) <= 1e-12 * limit:
            break
    return limit
