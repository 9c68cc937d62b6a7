"""Clipping before the reduction: Σ clip(g_r) in place of clip(Σ g_r)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from distbench.compare.pairs import Pair
from distbench.compare.values import Array, measure_norm, measure_size
from distbench.diagnose.context import (
    Context,
    Hypothesis,
    find_shards,
    find_tolerance,
)
from distbench.diagnose.fit import Row, fit_weights
from distbench.diagnose.reduction import name_missing_sum
from distbench.trace import WHOLE, SparseRows

PHASES = ("local_gradient", "reduced_gradient")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """The gradients that one wrong value should have been made of.

    Attributes:
        number: Number of the case.
        case: The wrong value.
        terms: Gradient of each replica that takes part.
        replicas: Their numbers.
    """

    number: int
    case: Pair
    terms: tuple[Array, ...]
    replicas: tuple[int, ...]

    @property
    def arrived(self) -> bool:
        """Whether anything is left of the addends.

        Where nothing is, they may have cancelled: a cause can foretell that, but what
        was done to them cannot be read off.
        """
        return bool(np.any(self.case.observed))


def list_sources(context: Context, *, own: bool = False) -> list[Source]:
    """Cases whose addends are known, and to whose addends something was done.

    Args:
        context: The wrong values.
        own: Whether a replica's value is made of its own gradient alone.
    """
    return [
        source
        for source in _list_known(context, own=own)
        if not _is_plain_sum(context, source.case, source.terms)
    ]


def _list_known(context: Context, *, own: bool = False) -> Iterator[Source]:
    """Cases whose addends are known, each kind of phase in its own way."""
    for number, case in context.list_cases():
        replica = case.key.replica
        if context.phase == "local_gradient" and replica != WHOLE:
            terms: tuple[Array, ...] = (case.expected,)
            replicas: tuple[int, ...] = (replica,)
        else:
            # What was done to a replica's own gradient is in those that were observed.
            is_own = context.phase == "local_gradient"
            terms = find_shards(context, case) if is_own else context.find_terms(case)
            replicas = tuple(range(len(terms)))
        if own and terms and replica != WHOLE:
            terms, replicas = (terms[replica],), (replica,)
        if terms:
            yield Source(number=number, case=case, terms=terms, replicas=replicas)


def _predict_small(
    context: Context, clip: Callable[[Array], Array]
) -> dict[int, Array]:
    """Sums of addends that all were too small to be clipped, unlike the sums.

    Nothing was done to them, which is wrong only if one device clips the sum: that it
    came to what the same clip makes of it shows that it does.
    """
    found: dict[int, Array] = {}
    for source in _list_known(context):
        total = np.sum(source.terms, axis=0)
        if context.phase == "reduced_gradient" and _is_plain_sum(
            context, source.case, source.terms
        ):
            rest = np.abs(source.case.expected - clip(total))
            if np.all(rest <= find_tolerance(source.case, context.replicas)):
                found[source.number] = total
    return found


def _is_plain_sum(context: Context, case: Pair, terms: Sequence[Array]) -> bool:
    """Whether nothing was done to the addends: what is wrong has another cause."""
    with np.errstate(invalid="ignore"):
        rest = np.abs(case.observed - sum(terms))
    return bool(np.all(rest <= find_tolerance(case, context.replicas)))


def explain_by_clipped_norm(context: Context) -> Iterator[Hypothesis]:
    """Each replica's gradient scaled down to a norm, by tensor or over all of them.

    The weight w_r of each addend is fitted. Under the hypothesis w_r ‖g_r‖ is the same
    number c wherever w_r < 1; with that c every weight is predicted anew.
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
            small = (
                _predict_small(context, partial(_limit_norm, limit=limit))
                if measure is measure_tensor
                else {}
            )
            yield Hypothesis(
                code="clip-before-reduction",
                predicted={**predicted, **small},
                detail=f"every replica clips {words} to {limit:.6g} before the "
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
                detail=f"each replica clips {words} to {limit:.6g} and goes on with "
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


Measure = Callable[[Source, int], float]


def measure_tensor(source: Source, place: int) -> float:
    """Norm of one addend, repeated rows added up."""
    return measure_norm(source.terms[place])


class SliceNorm:
    """Norm of one addend as TensorFlow takes it of a sparse one: that of its slices."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __call__(self, source: Source, place: int) -> float:
        """Norm of the addend at a place; of a dense one its own."""
        key = replace(
            source.case.key, phase="local_gradient", replica=source.replicas[place]
        )
        evidence = self._context.evidence
        for trace in (evidence.observed, evidence.reference):
            value = trace.get(key)
            if isinstance(value, SparseRows):
                return measure_norm(np.asarray(value.values, np.float64))
        return measure_tensor(source, place)


def _list_norms(context: Context) -> Iterator[tuple[str, Measure]]:
    yield "the norm of each variable's gradient", measure_tensor
    yield "the norm of each variable's gradient", SliceNorm(context)
    yield "the global norm of each replica's gradients", GlobalNorm(context)


class GlobalNorm:
    """Norm over all variables of a replica's gradients at a step."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[tuple[int, int], float] = {}

    def __call__(self, source: Source, place: int) -> float:
        """That norm of the replica whose addend is at a place."""
        step, replica = source.case.key.step, source.replicas[place]
        if (step, replica) not in self._known:
            traces = [self._context.evidence.observed, self._context.evidence.reference]
            if self._context.phase == "local_gradient":
                traces.reverse()
            squares = [0.0]
            for trace in traces:
                squares = [
                    # TensorFlow's norm of a sparse gradient is that of its slices.
                    measure_norm(np.asarray(getattr(v, "values", v), np.float64)) ** 2
                    for k, v in trace.values.items()
                    if (k.step, k.phase, k.replica) == (step, "local_gradient", replica)
                ]
                if squares:
                    break
            self._known[(step, replica)] = float(np.sqrt(sum(squares)))
        return self._known[(step, replica)]


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


def _limit_norm(total: Array, limit: float) -> Array:
    norm = measure_norm(total)
    return total * min(1.0, limit / norm) if norm > 0 else total


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
            **_predict_small(context, lambda total: np.clip(total, -limit, limit)),
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
