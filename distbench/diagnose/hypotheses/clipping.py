"""Clipping before the reduction: Σ clip(g_r) in place of clip(Σ g_r)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from distbench.compare.values import Array, densify, measure_size
from distbench.diagnose.addends import (
    PHASES,
    Source,
    find_untouched,
    list_sources,
    split_slices,
)
from distbench.diagnose.context import Context, Hypothesis, find_tolerance
from distbench.diagnose.hypotheses.norms import (
    ElementNorm,
    Norm,
    Ratio,
    SliceNorm,
    TensorNorm,
    UnitNorm,
    list_global_norms,
    measure_units,
)
from distbench.diagnose.hypotheses.reduction import name_missing_sum

_ENOUGH = 2048
"""Elements of a large value that a limit is fitted to, twice: it is one number, and
what it foretells is held against all."""
_DIFFERENT = 1.01
"""Norms that are closer than this tell a limit no better than one of them would."""


def explain_by_clip(context: Context) -> Iterator[Hypothesis]:
    """Each replica's gradient scaled down to a norm c, and then added up.

    The norm may be that of a tensor, of all of a replica's gradients, of each unit of a
    layer or of each element, and c a share of the variable's. c is fitted.
    """
    if context.phase not in PHASES:
        return
    found = list_sources(context)
    untouched = find_untouched(context)
    n = context.replicas
    for words, norm, sources in _list_norms(context, found):
        for mean in (1.0,) if n == 1 else (1.0, 1.0 / n):
            limit = _fit_limit(sources, norm, mean)
            if limit is None or _is_refuted(context, sources, norm, limit):
                continue
            predicted = {s.number: _sum_clipped(s, norm, limit, mean) for s in sources}
            yield Hypothesis(
                code="clip-before-reduction",
                predicted={
                    **predicted,
                    **_predict_small(context, untouched, norm, limit),
                },
                detail=f"every replica clips {words.format(limit)} before the "
                "replicas' gradients are added up",
                of_due=True,
            )


def _is_refuted(
    context: Context, sources: Sequence[Source], norm: Norm, limit: float
) -> bool:
    """Whether another replica's own gradient of the same variable exceeds the limit."""
    if context.phase != "local_gradient":
        return False
    for source in sources:
        for replica in range(context.replicas):
            key = source.case.key.at(replica)
            value = context.evidence.observed.get(key)
            if key not in context.right or value is None:
                continue
            other = replace(source, case=replace(source.case, key=key))
            size = norm.relate(other, densify(value))
            if size is not None and np.any(
                np.isfinite(size) & (size > _DIFFERENT * limit)
            ):
                return True
    return False


def explain_by_clip_of_none(context: Context) -> Iterator[Hypothesis]:
    """What one device clips and no replica does: none has so large a gradient, or else.

    Nothing was done to the addends, so the limit is read off what is due: one has to
    make all of it, of sums of different norms. Where replicas have gradients beyond
    it, they do not clip at all.
    """
    if context.phase != "reduced_gradient":
        return
    plain = list(find_untouched(context).values())
    due = [_make_due(source) for source in plain]
    for words, norm, _ in _list_norms(context, ()):
        if any(norm.relate(one, one.terms[0]) is None for one in due):
            continue
        of_sum = _OfSum(norm)
        limit = _fit_limit(due, of_sum)
        if limit is None or not all(
            np.all(
                np.abs(one.case.observed - _sum_clipped(one, of_sum, limit))
                <= find_tolerance(one.case, context.replicas)
            )
            for one in due
        ):
            continue
        sizes = np.concatenate([np.ravel(of_sum(one, 0)) for one in due])
        clipped = sizes[sizes > limit]
        if clipped.max() <= _DIFFERENT * clipped.min():
            continue
        clip = words.format(limit)
        yield Hypothesis(
            code="clip-before-reduction",
            predicted={s.number: _sum_clipped(s, norm, limit) for s in plain},
            detail=f"every replica clips {clip} before the replicas' gradients are "
            "added up: none is so large, and their sum is",
            of_due=True,
        )
        yield Hypothesis(
            code="hyperparameter-differs",
            predicted={s.number: np.sum(s.terms, axis=0) for s in plain},
            detail=f"one device clips {clip}, and the cluster clips nothing",
            of_due=True,
        )


def _make_due(source: Source) -> Source:
    """What is due of a value, as if it had been seen to be made of the sum."""
    case = replace(source.case, observed=source.case.expected)
    total = np.sum(source.terms, axis=0)
    return replace(source, case=case, terms=(total,), replicas=source.replicas[:1])


@dataclass(frozen=True, slots=True)
class _OfSum:
    """A norm of sums, in the place of one of addends."""

    norm: Norm

    def __call__(self, source: Source, place: int) -> float | Array:
        """That of the sum at a place."""
        found = self.norm.relate(source, source.terms[place])
        assert found is not None
        return found

    def relate(self, source: Source, value: Array) -> float | Array | None:
        """As that of addends."""
        return self.norm.relate(source, value)


def explain_by_own_clip(context: Context) -> Iterator[Hypothesis]:
    """Each replica goes on with its own gradient, clipped; nobody sums."""
    if context.phase != "reduced_gradient" or context.replicas == 1:
        return
    found = list_sources(context, own=True)
    code = name_missing_sum(context)
    for words, norm, sources in _list_norms(context, found):
        limit = _fit_limit(sources, norm)
        if limit is not None:
            yield Hypothesis(
                code=code,
                predicted={s.number: _sum_clipped(s, norm, limit) for s in sources},
                detail=f"each replica clips {words.format(limit)} and goes on with "
                "what it has",
            )


def _list_norms(
    context: Context, sources: Sequence[Source]
) -> Iterator[tuple[str, Norm, Sequence[Source]]]:
    """What a limit is called, of which norm it is, and what is clipped to it."""
    tensor = "the norm of each variable's gradient to {:.6g}"
    yield tensor, TensorNorm(), sources
    yield tensor, SliceNorm(context), sources
    every = "the global norm of each replica's gradients to {:.6g}"
    for norm in list_global_norms(context):
        yield every, norm, sources
    yield f"{tensor} times that of the variable", Ratio(context), sources
    element = "its gradient's elements to ±{:.6g}"
    yield element, ElementNorm(), sources
    slices = [split_slices(context, source) for source in sources]
    yield f"{element}, slice by slice", ElementNorm(), slices
    unit = "the norm of each unit's gradient to {:.6g}"
    yield unit, UnitNorm(), sources
    by_unit = Ratio(context, measure_units)
    yield f"{unit} times that of the unit's weights", by_unit, sources


def _predict_small(
    context: Context, untouched: Mapping[int, Source], norm: Norm, limit: float
) -> dict[int, Array]:
    """Sums of addends that all were too small to be clipped, unlike the sums.

    Nothing was done to them, which is wrong only if one device clips the sum: that it
    came to what the same clip makes of it shows that it does.
    """
    found: dict[int, Array] = {}
    for number, source in untouched.items():
        total = np.sum(source.terms, axis=0)
        size = norm.relate(source, total)
        clipped = total if size is None else total * _find_share(size, limit)
        rest = np.abs(source.case.expected - clipped)
        if np.all(rest <= find_tolerance(source.case, context.replicas)):
            found[number] = _sum_clipped(source, norm, limit)
    return found


def _find_share(size: float | Array, limit: float) -> Array:
    """What a clip leaves of values of a size: min(1, limit / size)."""
    size = np.asarray(size)
    return np.minimum(
        1.0, np.divide(limit, size, out=np.ones(size.shape), where=size > 0)
    )


def _sum_clipped(source: Source, norm: Norm, limit: float, mean: float = 1.0) -> Array:
    total = np.zeros_like(source.case.expected)
    for place, term in enumerate(source.terms):
        total = total + mean * _find_share(norm(source, place), limit) * term
    return total


def _fit_limit(
    sources: Sequence[Source], norm: Norm, mean: float = 1.0
) -> float | None:
    """The limit that leaves least of what was observed; None if it would clip nothing.

    Σ_r g_r min(1, c/‖g_r‖) is piecewise linear in c: Newton's iteration on the
    least-squares error, from several starts. Every value weighs alike.
    """
    sums = _join_sums(
        [_make_sum(source, norm, mean) for source in sources if source.arrived]
    )
    sizes = np.concatenate([one.norms.ravel() for one in sums] or [np.zeros(0)])
    sizes = sizes[np.isfinite(sizes)]
    if not np.any(sizes):
        return None
    starts = {0.0, *np.quantile(sizes, (0.3, 0.5, 0.7, 0.9, 0.97)).tolist()}
    limits = [_refine(sums, start) for start in sorted(starts)]
    best = min(limits, key=lambda limit: sum(one.measure_rest(limit) for one in sums))
    return best if 0 < best < float(sizes.max()) else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ClippedSum:
    """Σ_r g_r min(1, c/‖g_r‖) of elements, against what was observed of them.

    Attributes:
        observed: [elements].
        terms: By addend: [addends, elements].
        norms: What each element is clipped by: [addends, elements].
    """

    observed: Array
    terms: Array
    norms: Array

    def find_rest(self, limit: float) -> Array:
        """What is left of the observed value."""
        shares = _find_share(self.norms, limit)
        return np.asarray(self.observed - np.sum(shares * self.terms, axis=0))

    def find_slope(self, limit: float) -> Array:
        """By how much the sum grows with the limit."""
        none = np.zeros(self.terms.shape)
        clipped = self.norms > limit
        return np.asarray(
            np.sum(np.divide(self.terms, self.norms, out=none, where=clipped), axis=0)
        )

    def measure_rest(self, limit: float) -> float:
        """Sum of the squares of what is left."""
        return float(np.sum(self.find_rest(limit) ** 2))


def _make_sum(source: Source, norm: Norm, mean: float) -> _ClippedSum:
    """One value, scaled so that each weighs alike.

    Of a large value some elements do: those in which it is furthest from the plain sum,
    which a clip has changed, and as many others.
    """
    observed = source.case.observed
    terms = [mean * term for term in source.terms]
    scale = max(map(measure_size, (observed, *terms)))
    picked = _pick_elements(np.abs(observed - sum(terms)))
    norms = [
        np.broadcast_to(norm(source, place), observed.shape).ravel()[picked]
        for place in range(len(terms))
    ]
    return _ClippedSum(
        observed=observed.ravel()[picked] / scale,
        terms=np.stack([term.ravel()[picked] / scale for term in terms]),
        norms=np.stack(norms),
    )


def _join_sums(sums: Sequence[_ClippedSum]) -> list[_ClippedSum]:
    """Those of as many addends as one, so that a step takes few calls."""
    groups: dict[int, list[_ClippedSum]] = {}
    for one in sums:
        groups.setdefault(len(one.terms), []).append(one)
    return [
        _ClippedSum(
            observed=np.concatenate([one.observed for one in group]),
            terms=np.concatenate([one.terms for one in group], axis=1),
            norms=np.concatenate([one.norms for one in group], axis=1),
        )
        for group in groups.values()
    ]


def _pick_elements(rest: Array) -> npt.NDArray[np.int_]:
    """Places of elements of a value, made flat: where most is left, and others."""
    if rest.size <= 2 * _ENOUGH:
        return np.arange(rest.size)
    largest = np.argpartition(rest.ravel(), -_ENOUGH)[-_ENOUGH:]
    others = np.random.default_rng(0).integers(0, rest.size, _ENOUGH)
    return np.concatenate([largest, others])


def _refine(sums: Sequence[_ClippedSum], limit: float) -> float:
    for _ in range(25):
        upper = lower = 0.0
        for one in sums:
            slope = one.find_slope(limit)
            upper += float(np.sum(one.find_rest(limit) * slope))
            lower += float(np.sum(slope * slope))
        if lower == 0:
            break
        move = upper / lower
        limit = max(limit + move, 0.0)
        if abs(move) <= 1e-12 * limit:
            break
    return limit
