"""Sums that nobody saw, read off the state that a step leaves.

Who sums and updates by hand shows own gradients and state. Of gradient descent, a
momentum or a first moment the state is a + B f(Σ_r g_r), where f is what the program
does to a gradient before. One device tells a by gradients of 0, and B by others.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.measure import Margin
from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME
from distbench.compare.inside.given import gradients_add_up
from distbench.compare.inside.of_micro_steps import take_sums
from distbench.diagnose.clues.cases import find_base, take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import add_weighted
from distbench.evidence import Evidence, Inside
from distbench.fed import get_factor
from distbench.trace import UPDATED, Trace, TraceKey, Values
from distbench.trace.numbers import Array, measure_norm, measure_size

ROUNDINGS = 8
"""So many units in its last place may a state and its parts lie off."""
_TOLD = 100
"""So many times the rounding must what is wrong be, to tell anything of it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fed:
    """What one device was fed with, and what it left.

    Attributes:
        silent: The state after gradients of 0.
        sums: That after several sums of the replicas' own, as weights of these.
    """

    silent: Trace
    sums: Sequence[tuple[Sequence[float], Trace]]

    def find_handed(self, replica: int, moves: Sequence[Array]) -> Array | None:
        """A replica's part of a move, as far as its own gradient alone leads."""
        for (weights, _), move in zip(self.sums, moves, strict=True):
            if weights[replica] and not any(np.delete(weights, replica)):
                return move / weights[replica]
        return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Shown:
    """A wrong state that shows the sum that it is made of.

    Attributes:
        case: The state.
        key: Where the sum would have been seen.
        terms: The replicas' own gradients.
        silent: a, the state after gradients of 0.
        handed: B f(g_r) of each replica.
        rate: B, as far as this state tells: less if all that it was fed with was cut.
        rounding: What the state may be off by.
        is_scaled: Whether that is B, as every sum leads the state in proportion.
    """

    case: Pair
    key: TraceKey
    terms: tuple[Array, ...]
    silent: Array
    handed: Sequence[Array]
    rate: float
    rounding: float
    is_scaled: bool

    @property
    def uncertainty(self) -> float:
        """What the sum may be off by."""
        return self.rounding / abs(self.rate)

    def agrees(self, other: _Shown) -> bool:
        """Whether another state shows the same sum, as far as both tell."""
        seen, told = self.read(self.rate).observed, other.read(other.rate).observed
        allowed = self.uncertainty + other.uncertainty + SAME * measure_size(told)
        return bool(np.all(np.abs(seen - told) <= allowed))

    def read(self, rate: float) -> Pair:
        """The sum, in the place of a reduced gradient."""
        return Pair(
            key=self.key,
            relation=self.case.relation,
            against=self.case.against,
            observed=(self.case.observed - self.silent) / rate,
            expected=(self.case.expected - self.silent) / rate,
            margin=Margin(bound=self.rounding / abs(rate)),
            dtype=self.case.dtype,
            terms=self.terms,
            rows=self.case.rows,
        )


def read_sums(context: Context) -> Iterator[tuple[Context, bool]]:
    """The wrong sums that wrong state is made of, as if they had been seen.

    And whether it is known how large they are, or only up to a factor. Nothing where
    not every variable has a state that shows them.

    Where all that one device was fed with was cut, an uncut gradient leads farther than
    was seen: as far as in other variables and steps, say, or in others of its step.
    """
    if shows_micro_steps(context.evidence):
        context = context.judge_by(_take_micro_steps(context.evidence))
    shown = _list_shown(context)
    known: list[list[float]] = []
    for pool in (_pool_kind, _pool_step, _pool_nothing):
        groups = [pool(context, one) for one in shown]
        largest = {
            group: max(
                (one.rate for one, g in zip(shown, groups, strict=True) if g == group),
                key=abs,
            )
            for group in groups
        }
        rates = [largest[group] for group in groups]
        if shown and rates not in known:
            known.append(rates)
            is_scaled = all(one.is_scaled for one in shown)
            yield _make_context(context, shown, rates), is_scaled


def shows_micro_steps(evidence: Evidence) -> bool:
    """Whether a look inside shows several gradients of what a step updates by hand."""
    inside = evidence.inside
    is_hidden = not evidence.sees_gradients
    return inside is not None and is_hidden and gradients_add_up(inside, 0)


def _take_micro_steps(evidence: Evidence) -> Evidence:
    """The evidence, with what tapes gave in all micro-steps as own gradients."""
    inside = cast(Inside, evidence.inside)
    return take_sums(evidence, inside, range(inside.observed.steps))


def _pool_kind(context: Context, shown: _Shown) -> Hashable:
    info = context.infos.get(shown.case.key.variable)
    if info is None or not info.of:
        return shown.case.key.variable == shown.key.variable
    return info.kind


def _pool_step(context: Context, shown: _Shown) -> Hashable:
    return shown.case.key.step, _pool_kind(context, shown)


def _pool_nothing(context: Context, shown: _Shown) -> Hashable:  # noqa: ARG001  # as others
    return shown.case.key


def _list_shown(context: Context) -> list[_Shown]:
    """What the wrong state shows; empty where it leaves a variable open."""
    fed = _find_fed(context)
    evidence = context.evidence
    is_known = evidence.tier != "free" or all(c.key.step == 0 for c in context.cases)
    if context.phase not in UPDATED or fed is None or not is_known:
        return []
    needed: set[TraceKey] = set()
    found: dict[TraceKey, _Shown] = {}
    unkept: list[_Shown | None] = []
    for _, case in context.list_cases():
        owner = _find_owner(context, case, fed)
        key = replace(case.key, phase="reduced_gradient", variable=owner)
        shown = _show_sum(context, case, key, fed) if owner else None
        info = context.infos.get(case.key.variable)
        if info is not None and info.owner == owner:
            needed.add(key)
        elif case.key.variable not in evidence.subject.kept and (
            info is None or info.role != "slot"
        ):
            unkept.append(shown)
        if shown is not None and (
            key not in found or shown.uncertainty < found[key].uncertainty
        ):
            found[key] = shown
    # Of what is not known to be kept of gradients alone the sum itself has to tell.
    if not all(one is not None and one.agrees(found[one.key]) for one in unkept):
        return []
    return list(found.values()) if needed <= set(found) else []


def find_start(context: Context, case: Pair) -> Array:
    """The state that gradients of 0 leave, where one device was asked; else the old."""
    fed = _find_fed(context) if context.phase in UPDATED else None
    silent = None if fed is None else _take(fed.silent, case)
    return find_base(case) if silent is None or np.isnan(silent).any() else silent


def find_source(context: Context, case: Pair) -> str:
    """The variable whose gradient leads a state: its own, or that of a buffer."""
    fed = _find_fed(context) if context.phase in UPDATED else None
    shown = _find_owner(context, case, fed) if fed else ""
    info = context.infos.get(case.key.variable)
    return shown or (info.owner if info else case.key.variable)


def _make_context(
    context: Context, shown: Sequence[_Shown], rates: Sequence[float]
) -> Context:
    evidence = context.evidence
    cases = tuple(one.read(rate) for one, rate in zip(shown, rates, strict=True))
    seen = Values(evidence.observed.values)
    handed: Values[TraceKey] = Values()
    for one, case, rate in zip(shown, cases, rates, strict=True):
        seen[case.key] = case.observed
        for replica, value in enumerate(one.handed):
            handed[case.key.at(replica)] = value / rate
    apart = replace(evidence.observed, values=handed)
    as_seen = replace(
        evidence,
        observed=replace(evidence.observed, values=seen),
        fed=replace(evidence.fed, apart=apart, sums=()),
    )
    return Context(evidence=as_seen, phase="reduced_gradient", cases=cases)


def _find_fed(context: Context) -> _Fed | None:
    silent, sums = None, []
    for trace in context.evidence.fed.sums:
        factor = get_factor(trace)
        kept = cast(Sequence[int], trace.notes["kept"])
        if factor == 0:
            silent = trace
        elif not trace.notes["narrow"]:
            weights = [factor * (r in kept) for r in range(context.replicas)]
            sums.append((weights, trace))
    return _Fed(silent=silent, sums=sums) if silent is not None and sums else None


def _find_owner(context: Context, case: Pair, fed: _Fed) -> str:
    """The variable whose gradient a state is made of; empty where none may be."""
    info = context.infos.get(case.key.variable)
    if info is not None and context.find_terms_of(case, info.owner):
        return info.owner
    best, owner = 0.0, ""
    moves = _find_moves(case, fed)
    for other in context.infos.values():
        terms = context.find_terms_of(case, other.path)
        if not terms or terms[0].shape != case.observed.shape:
            continue
        sums = [add_weighted(weights, terms) for weights, _ in fed.sums]
        along = sum(abs(float(np.sum(m * x))) for m, x in zip(moves, sums, strict=True))
        size = sum(
            measure_norm(m) * measure_norm(x) for m, x in zip(moves, sums, strict=True)
        )
        if size > 0 and along / size > best:
            best, owner = along / size, other.path
    return owner


def _find_moves(case: Pair, fed: _Fed) -> list[Array]:
    """By how much each sum leads a state away from where it is without gradients."""
    silent = _take(fed.silent, case)
    return [_take(trace, case) - silent for _, trace in fed.sums]


def _take(trace: Trace, case: Pair) -> Array:
    value = trace.get(case.key.at(0))
    if value is None:
        return np.full(case.observed.shape, np.nan)
    return take_rows(value, case)


def _show_sum(context: Context, case: Pair, key: TraceKey, fed: _Fed) -> _Shown | None:
    """What a state shows of a sum; None where it is not a + B f(Σ_r g_r)."""
    terms = context.find_terms_of(case, key.variable)
    moves = _find_moves(case, fed)
    if not terms or terms[0].shape != case.observed.shape:
        return None
    if not all(np.isfinite(move).all() for move in moves):
        return None
    silent = _take(fed.silent, case)
    sums = [add_weighted(weights, terms) for weights, _ in fed.sums]
    size = max(map(measure_size, (silent, case.observed, *moves)))
    rounding = ROUNDINGS * find_roundoff(case.dtype) * size
    rate = _fit_rate(moves, sums, rounding)
    if rate == 0 or _TOLD * rounding > measure_size(case.observed - case.expected):
        return None
    parts = [fed.find_handed(replica, moves) for replica in range(len(terms))]
    handed = [part for part in parts if part is not None]
    is_scaled = _is_linear(moves, sums, rate, rounding)
    if is_scaled and not handed:  # of each replica's own gradient nobody asked
        handed = [rate * term for term in terms]
    seen = case.observed - silent
    if len(handed) < len(terms) or not (is_scaled or _adds_up(handed, seen, rounding)):
        return None
    return _Shown(
        case=case,
        key=key,
        terms=terms,
        silent=silent,
        handed=handed,
        rate=rate,
        rounding=rounding,
        is_scaled=is_scaled,
    )


def _fit_rate(moves: Sequence[Array], sums: Sequence[Array], rounding: float) -> float:
    """B: what is cut off or left out of a gradient leads a state less far."""
    move = np.concatenate([m.ravel() for m in moves])
    total = np.concatenate([x.ravel() for x in sums])
    # Of the small ones rounding makes any ratio.
    least = min(rounding / SAME, 0.3 * measure_size(move))
    told = (np.abs(move) >= least) & (total != 0)
    if least <= rounding or not np.any(told):
        return 0.0
    move, total = move[told], total[told]
    ratios = move / total
    largest = float(ratios[np.argmax(np.abs(ratios))])
    near = np.abs(ratios - largest) <= 2 * rounding / least * abs(largest)
    return float(np.sum(move[near] * total[near]) / np.sum(total[near] ** 2))


def _is_linear(
    moves: Sequence[Array], sums: Sequence[Array], rate: float, rounding: float
) -> bool:
    """Whether every sum moves a state in proportion, but for elements left out."""
    moved = np.max(np.abs(moves), axis=0) > rounding
    return all(
        bool(np.all(np.abs(move - rate * moved * total) <= rounding))
        for move, total in zip(moves, sums, strict=True)
    )


def _adds_up(handed: Sequence[Array], seen: Array, rounding: float) -> bool:
    """Whether what each replica's own gradient does adds up to what was seen."""
    rest = np.abs(np.sum(handed, axis=0) - seen)
    return bool(np.all(rest <= len(handed) * rounding))
