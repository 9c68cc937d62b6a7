"""Every comparison of an evidence, and the proof that each could have failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.measure import (
    BITWISE,
    Margin,
    Measured,
    is_wrong,
    measure_error,
)
from distbench.compare.arrays.noise import Noise
from distbench.compare.arrays.pair import Pair, Relation
from distbench.compare.pairs.listed import Pairs
from distbench.compare.state.led import list_led
from distbench.compare.state.measured_noise import measure_noise
from distbench.compare.state.results import list_results
from distbench.compare.state.totals import list_totals
from distbench.details import Compared
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, INITIAL, WHOLE, Phase, TraceKey
from distbench.trace.numbers import (
    BLOCK,
    Array,
    are_equal,
    list_blocks,
    measure_norm,
    measure_size,
    round_to,
)

_MOST_HELD_BYTES = 1 << 28
Plant = Callable[[Array, Array | float, slice], Array]
"""Makes of observed numbers, the state before, and where they lie what is planted."""
Named = tuple[Phase, Relation, str, int]
"""Phase, relation, variable and replica of a value, in whatever step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Compared):
    """One observed value against one expected value, and what that proves.

    Attributes:
        effective: Whether the same numbers with one example lost, and with one
            replica lost, fail. True for a comparison that failed as it is, by a number.
        hidden: Not effective, and it would be if the bound were 0: noise hides it.
        change: Largest absolute value of what is expected, of a state what the step
            changes in it. Elements that may be anything have no part in this, nor in
            what follows, unless all may.
        resolution: Smallest error that can be seen here: the bound, or one unit in
            the last place of the largest element, which it is where all bits agree.
    """

    phase: Phase
    relation: Relation
    effective: bool
    hidden: bool
    change: float
    resolution: float

    @property
    def key(self) -> TraceKey:
        """Where the value was observed."""
        return TraceKey(
            step=self.step,
            call=self.call,
            phase=self.phase,
            variable=self.variable,
            replica=self.replica,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judged:
    """A comparison, with the numbers that it is about where they are wrong.

    The numbers of a right comparison are let go: a large model's would fill the memory.
    If too many are wrong, each value keeps those of its first wrong step alone.
    """

    comparison: Comparison
    pair: Pair | None = None


def compare_evidence(
    evidence: Evidence, noise: Noise | None = None
) -> tuple[Judged, ...]:
    """Make every comparison that an evidence allows.

    Args:
        evidence: What was observed and expected.
        noise: Of the single-device run; measured from the twins where not given.
    """
    noise = measure_noise(evidence) if noise is None else noise
    # One pair at a time: all of a large model's would fill the memory.
    pairs = _list_pairs(evidence, noise)
    return tuple(_limit(map(partial(judge_pair, evidence=evidence), pairs)))


def take_numbers_again(
    links: Sequence[Judged], evidence: Evidence, noise: Noise
) -> tuple[Judged, ...]:
    """Some comparisons with the numbers of each value's first one among them.

    What was held are those of its first wrong one, which is another where that follows
    from a value before it.

    Args:
        links: Some of `compare_evidence`, in the order of their steps.
        evidence: What was observed and expected.
        noise: Of the single-device run.
    """
    first: dict[Named, Judged] = {}
    for link in links:
        first.setdefault(_name_value(link.comparison), link)
    lacking = [link for link in first.values() if link.pair is None]
    wanted = {(link.comparison.key, link.comparison.relation) for link in lacking}
    if not wanted:
        return tuple(links)
    made = {
        (pair.key, pair.relation): pair
        for pair in _list_pairs(evidence, noise)
        if (pair.key, pair.relation) in wanted
    }
    return tuple(
        replace(link, pair=made.get((link.comparison.key, link.comparison.relation)))
        if link.pair is None
        else link
        for link in links
    )


def _list_pairs(evidence: Evidence, noise: Noise) -> Iterator[Pair]:
    totals = tuple(list_totals(evidence, noise))
    others = chain(
        totals, list_results(evidence, noise, totals), list_led(evidence, noise)
    )
    parted = evidence.measure.parted
    told = (pair for pair in others if pair.key.step not in parted)
    return chain(Pairs(evidence, noise).list_all(), told)


def find_wrong_losses(evidence: Evidence, noise: Noise) -> frozenset[int]:
    """Steps in which losses of the replicas are not what they should be.

    Args:
        evidence: What was observed and expected.
        noise: Of the single-device run.
    """
    pairs = Pairs(evidence, noise).list_all(phase="loss")
    judged = (judge_pair(pair, evidence).comparison for pair in pairs)
    return frozenset(comparison.step for comparison in judged if comparison.wrong)


def _limit(judged: Iterable[Judged]) -> Iterator[Judged]:
    """Let wrong numbers go when too many are held, but for the first of each value."""
    first: dict[Named, int] = {}
    held: dict[int, int] = {}
    for item in judged:
        pair, c = item.pair, item.comparison
        if pair is not None:
            if (
                first.setdefault(_name_value(c), c.step) < c.step
                and sum(held.values()) > _MOST_HELD_BYTES
            ):
                item = replace(item, pair=None)
            else:
                # Copies of a value share their numbers.
                arrays = (pair.observed, pair.expected)
                held.update({id(array): array.nbytes for array in arrays})
        yield item


def _name_value(shown: Comparison) -> Named:
    return shown.phase, shown.relation, shown.variable, shown.replica


def judge_pair(pair: Pair, evidence: Evidence) -> Judged:
    """Test a pair and, if it passes, the same pair with planted errors."""
    if not pair.tested:
        pair.tested.append(_test(pair, evidence))
    comparison = pair.tested[0]
    if comparison.replica != pair.key.replica:
        comparison = replace(comparison, replica=pair.key.replica)
    return Judged(comparison=comparison, pair=pair if comparison.wrong else None)


def _test(pair: Pair, evidence: Evidence) -> Comparison:
    measured = measure_error(pair.observed, pair.expected, pair.margin)
    # Who finds Inf or NaN would not have to see that an example is lost.
    effective, hidden = bool(measured.wrong and np.isfinite(measured.error)), False
    if not measured.wrong and _may_lack(pair, evidence):
        effective, hidden = _prove_effect(pair, evidence)
    return _make(pair, measured, effective, hidden)


def _may_lack(pair: Pair, evidence: Evidence) -> bool:
    """Whether an example or a replica can be lost here.

    Replicas that all lost it would still agree, and neither what is there before the
    first step has any, nor what a step that is left out makes of the state.
    """
    if pair.relation == "replicas" or pair.key.step == INITIAL:
        return False
    is_left = (pair.key.step, pair.key.variable) in evidence.measure.settled
    is_first = pair.key.phase in COMPUTED
    return is_first or not (is_left and pair.relation == "reference")


def _prove_effect(pair: Pair, evidence: Evidence) -> tuple[bool, bool]:
    """Plant what a lost example and a lost replica would change, and test again.

    A lost example takes 1/G of a gradient or loss, and of what a step changes in the
    state; a lost replica takes its own addend, or n_r/G where the addends are not
    known. Returns whether every planted error is seen, and whether it is only noise
    that hides one. Where the same ops ran on the same numbers and all bits agree, the
    bits are the proof: with an error they would not, and within the margin, that noise
    makes wide, is then no proof.
    """
    plants = tuple(_list_plants(pair, evidence))
    margin = pair.margin
    if pair.repeats and are_equal(pair.observed, pair.expected):
        margin = BITWISE
    seen = all(_is_seen(pair, plant, margin) for plant in plants)
    if seen:
        return True, False
    return False, all(_is_seen(pair, plant, BITWISE) for plant in plants)


def _list_plants(pair: Pair, evidence: Evidence) -> Iterator[Plant]:
    shards = evidence.reference.get_shards(pair.key.step)
    examples = max(1, sum(shards))
    yield lambda observed, base, _: observed - (observed - base) / examples
    if len(shards) == 1 or _is_of_one_shard(pair):
        return
    # A replica without examples can be lost without harm.
    norms = [measure_norm(term) for term in pair.terms]
    lost = [place for place, norm in enumerate(norms) if norm]
    if lost:
        term = pair.terms[min(lost, key=lambda place: norms[place])].ravel()
        yield lambda observed, _, block: observed - term[block]
    else:
        smallest = min((size for size in shards if size), default=0)
        share = smallest / examples
        yield lambda observed, base, _: observed - (observed - base) * share


def _is_seen(pair: Pair, plant: Plant, margin: Margin) -> bool:
    """Whether a planted error fails the test; mostly a few of the numbers show it."""
    shape = pair.observed.shape
    observed, expected = pair.observed.ravel(), pair.expected.ravel()
    base, bound = (_flatten(numbers, shape) for numbers in (pair.base, margin.bound))

    def make(block: slice) -> Array:
        start = base[block] if isinstance(base, np.ndarray) else base
        seen = observed[block]
        with np.errstate(all="ignore"):
            planted = round_to(plant(seen, start, block), pair.dtype)
        # What is infinite stays so, whatever is lost of it.
        return np.where(np.isfinite(seen), planted, seen)

    for block in list_blocks(len(observed)) if len(observed) > BLOCK else ():
        limit = bound[block] if isinstance(bound, np.ndarray) else bound
        few = margin if margin is BITWISE else Margin(bound=limit)
        if is_wrong(make(block), expected[block], few):
            return True
    return is_wrong(make(slice(None)).reshape(shape), pair.expected, margin)


def _flatten(numbers: Array | float, shape: tuple[int, ...]) -> Array | float:
    if not isinstance(numbers, np.ndarray):
        return numbers
    whole = numbers if numbers.shape == shape else np.broadcast_to(numbers, shape)
    return whole.ravel()


def _is_of_one_shard(pair: Pair) -> bool:
    key = pair.key
    return key.phase in COMPUTED and key.replica != WHOLE


def _make(pair: Pair, measured: Measured, effective: bool, hidden: bool) -> Comparison:
    key = pair.key
    changed, expected, widest = _take_known(pair)
    return Comparison(
        step=key.step,
        call=key.call,
        phase=key.phase,
        variable=key.variable,
        replica=key.replica,
        relation=pair.relation,
        against=pair.against,
        error=pair.gap or measured.error,
        bound=measured.bound,
        error_over_bound=measured.error_over_bound,
        ratio=measured.ratio,
        wrong=measured.wrong,
        effective=effective,
        hidden=hidden,
        change=measure_size(changed),
        resolution=max(
            widest if measured.error else 0.0,
            2 * find_roundoff(pair.dtype) * measure_size(expected),
        ),
    )


def _take_known(pair: Pair) -> tuple[Array, Array, float]:
    """What is due where it is known: what the step changes, all, largest bound."""
    changed, widest = pair.expected - pair.base, pair.margin.widest
    if not np.isfinite([widest, measure_size(changed)]).all():
        bounds = np.broadcast_to(pair.margin.bound, changed.shape)
        known = np.isfinite(bounds) & np.isfinite(changed)
        if known.any():
            return changed[known], pair.expected[known], measure_size(bounds[known])
    return changed, pair.expected, widest
