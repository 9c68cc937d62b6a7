"""What a program is like on one device: does the grouping of its examples matter?

A sum over examples does not depend on how they are dealt out. Batch statistics, losses
that hold the examples of a batch against each other, and random numbers do: then the
global batch on one device is not what the replicas have to add up to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from distbench.compare.arrays.least_squares import solve_least_squares, stack_scaled
from distbench.compare.arrays.noise import Noise
from distbench.compare.arrays.pull import Pull
from distbench.compare.arrays.ratio import SAME, are_means_by_size, share_by_size
from distbench.compare.nature.doubled import (
    Kind,
    Margins,
    Places,
    find_kind,
    find_limit,
    find_loss_kind,
    find_pulls,
    find_terms,
    grows_alike,
    take_gradients,
)
from distbench.compare.nature.lost import find_margins, measure_lost, round_apart, widen
from distbench.compare.nature.other_terms import has_both_kinds
from distbench.compare.nature.parts import join_parts, split_parts
from distbench.compare.nature.swapped import is_led_by_count
from distbench.evidence import Evidence
from distbench.trace import WHOLE, Phase, Trace, TraceKey
from distbench.trace.numbers import Array, measure_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Nature:
    """How the values of shards, each computed alone, relate to the whole batch's.

    Attributes:
        grouped: Whether the result depends on which examples are in a shard together,
            or on how many: then it draws as many random numbers.
        kind: What the program takes of the examples that it gets: a `sum`, which it may
            divide by a constant, their `mean`, or `terms` of both kinds. None where
            that is unknown, as of a mean over something else than examples.
        of_loss: The same of the loss that it returns, where that is a sum or a mean.
        splits: Whether that can be taken apart as its gradients can; see `grows_alike`.
        pulls: Of each variable the numbers a, b of a penalty with the gradient
            a θ + b sign(θ), which every shard alone has in full.
        lost: Share of a value that it loses where it computes in a narrower dtype than
            that of its variables; 0 where it does not.
    """

    grouped: bool = False
    lost: float = 0.0
    pulls: Mapping[str, Pull] = field(default_factory=dict)
    kind: Kind | None = None
    of_loss: Kind | None = None
    splits: bool = True

    def get_kind(self, phase: Phase) -> Kind | None:
        """What is taken of the examples for a loss, or for its gradients."""
        is_own = phase == "loss" and self.kind in ("sum", "mean") and not self.pulls
        return self.of_loss or self.kind if is_own else self.kind

    def weigh(
        self, sizes: Sequence[int], phase: Phase = "local_gradient"
    ) -> tuple[float, ...]:
        """What each replica's value is of that of its shard alone on one device.

        All of it, or a mean's share n_r/G of all examples; of terms of both kinds each
        has its own, and nothing is said here.
        """
        if self.get_kind(phase) != "mean":
            return (1.0,) * len(sizes)
        return share_by_size(sizes)


def find_nature(evidence: Evidence, noise: Noise) -> Nature:
    """Judge by behaviour, from the single-device runs of the first step."""
    regrouped = evidence.probes.get("regrouped")
    if evidence.measure.shards_known or regrouped is None:
        return Nature()
    lost = measure_lost(evidence)
    found = _take_parts(evidence.reference, regrouped, 0)
    if found is None or counts_others(evidence):
        return Nature(lost=lost)
    whole, shards, others = found
    fine = find_margins(noise, whole, 0)
    margins = widen(fine, whole, lost)
    sizes = evidence.reference.shards
    kind = find_kind(evidence, noise, margins, shards)
    pulls = None
    if kind is None or (kind == "sum" and lost):
        # A penalty may be less than what is lost, and doubling loses nothing.
        lossless = round_apart(evidence, fine, shards)
        pulls = find_pulls(evidence, margins if kind is None else lossless, shards)
    grouped = not (
        _is_free_of_groups(sizes, margins, whole, shards, others, kind)
        or (kind is None and _is_of_parts(evidence, margins, whole))
        or is_led_by_count(evidence, margins)
    ) or _is_led_by_own(evidence, noise, regrouped, lost, kind)
    if grouped and kind is None and pulls is None:
        if not lost:
            kind = find_terms(evidence, margins, shards)
        kind = kind or find_limit(evidence, margins, whole, shards)
    nature = Nature(
        grouped=grouped,
        lost=lost,
        kind=kind if pulls is None else "sum",
        pulls=pulls or {},
        of_loss=find_loss_kind(evidence, noise, lost),
        splits=grows_alike(evidence, noise, lost),
    )
    if grouped:
        return _ask_other_kinds(evidence, noise, nature)
    if kind is None:
        return nature
    if _agree(whole, _add(shards, list(nature.weigh(sizes))), margins, len(shards)):
        return _ask_later_steps(evidence, noise, nature)
    if "once" in evidence.probes:
        nature = replace(nature, grouped=True)  # the whole draws other numbers
    else:
        nature = replace(nature, kind=None)  # shards count words or weights
    return nature


def counts_others(evidence: Evidence) -> bool:
    """Whether shards alone lose examples that count on one device, or the other way.

    Their places in a batch decide which do, or what each of them adds. No shard alone
    is a measure then: it holds what is wrong.
    """
    counted = evidence.counted
    return counted is not None and bool(
        counted.missed or counted.added or counted.by_place
    )


def name_terms(evidence: Evidence, noise: Noise, nature: Nature) -> Nature:
    """With terms of both kinds, where shards have these and make up the whole batch."""
    reference = evidence.reference
    shards = [take_gradients(reference, r) for r in range(reference.replicas)]
    if nature.kind is not None or nature.lost or not all(shards):
        return nature
    margins = find_margins(noise, shards[0], 0)
    return replace(nature, kind=find_terms(evidence, margins, shards))


def _ask_later_steps(evidence: Evidence, noise: Noise, nature: Nature) -> Nature:
    """Whether shards make up the whole of each later step as they do the first one's.

    A step may handle gradients otherwise than the first one did: where those of two
    tasks are at odds, or a norm exceeds a limit. What it takes a mean over, such as
    words, may be dealt out as the examples are in the first step alone. And a term may
    come to it that is of another kind: a penalty on the way from the start, or a loss
    that is annealed.
    """
    reference, of_others = evidence.reference, False
    for step in range(1, reference.steps):
        found = _take_parts(reference, reference, step)
        if found is None:
            continue
        whole, shards, _ = found
        margins = widen(find_margins(noise, whole, step), whole, nature.lost)
        weights = nature.weigh(reference.get_shards(step))
        if _agree(whole, _add(shards, list(weights)), margins, len(shards)):
            continue
        if _is_of_parts(evidence, margins, whole, step):
            of_others = True
            continue
        fitted = _fit(whole, shards) if nature.kind == "mean" else None
        if fitted is None or not (
            abs(sum(fitted) - 1) < SAME
            and _agree(whole, _add(shards, fitted), margins, len(shards))
        ):
            return _ask_other_kinds(evidence, noise, replace(nature, grouped=True))
        of_others = True
    return replace(nature, kind=None) if of_others else nature


def _ask_other_kinds(evidence: Evidence, noise: Noise, nature: Nature) -> Nature:
    """With terms of both kinds, where some shard or step of a grouped program has."""
    is_open = nature.kind in ("sum", "mean") and not nature.pulls and not nature.lost
    if is_open and has_both_kinds(evidence, noise):
        return replace(nature, kind="terms", of_loss=None)
    return nature


def is_grouped_throughout(evidence: Evidence, noise: Noise) -> bool:
    """Whether shards make up the whole of no variable's gradient in the first step.

    Where a step updates several times, what comes after an update is another on each
    shard alone, as that is updated by itself; what comes before it is not, and makes up
    the whole unless the grouping of the examples matters.
    """
    regrouped = evidence.probes.get("regrouped")
    found = regrouped and _take_parts(evidence.reference, regrouped, 0)
    if not found:
        return False
    whole, shards, _ = found
    margins = find_margins(noise, whole, 0)
    sizes = evidence.reference.shards
    by_size = share_by_size(sizes)
    for place, margin in margins.items():
        one: Places = {place: whole[place]}
        parts: list[Places] = [{place: s[place]} for s in shards]
        if measure_size(whole[place]) <= 2 * len(sizes) * margin:
            continue  # a gradient of 0 is made of anything
        for weights in ([1.0] * len(sizes), by_size, _fit(one, parts)):
            if weights and _agree(
                one, _add(parts, weights), {place: margin}, len(sizes)
            ):
                return False
    return True


def _take_parts(
    reference: Trace, regrouped: Trace, step: int
) -> tuple[Places, list[Places], list[Places]] | None:
    """Gradients of the whole batch, of its shards, and of those of other examples.

    None where not all of them have the same ones.
    """
    replicas = range(reference.replicas)
    whole = take_gradients(reference, WHOLE, step)
    shards = [take_gradients(reference, r, step) for r in replicas]
    others = [take_gradients(regrouped, r, step) for r in replicas]
    if not whole or any(set(s) != set(whole) for s in (*shards, *others)):
        return None
    return whole, shards, others


def _is_free_of_groups(
    sizes: tuple[int, ...],
    margins: Margins,
    whole: Places,
    shards: list[Places],
    others: list[Places],
    kind: Kind | None,
) -> bool:
    """Whether the whole is a sum, or a weighted mean, of whatever shards it is cut in.

    What every shard holds besides, such as a penalty, drops out: of two sums over all
    shards by their difference, of a mean by weights that add up to 1. What doubles with
    its examples is no mean, though in a narrow dtype some weights may come near; but it
    may be one times the shard's share of examples.
    """

    def agree(left: Places, right: Places) -> bool:
        return _agree(left, right, margins, len(shards))

    ones = [1.0] * len(shards)
    if agree(_add(shards, ones), _add(others, ones)):
        return True
    if kind == "sum":
        # Both deals say by what counts: a mean of the own examples that divides a sum
        # is such a weight, and another statistic, as their deviation, is none.
        deals = [_make_up(whole, deal, agree) for deal in (shards, others)]
        return all(found and are_means_by_size(found, sizes) for found in deals)
    if agree(whole, _add(shards, share_by_size(sizes))):
        return True
    # A mean over something else than examples: words, or those of a class.
    return _make_up(whole, shards, agree) is not None


def _make_up(
    whole: Places, shards: list[Places], agree: Callable[[Places, Places], bool]
) -> Sequence[float] | None:
    """Weights with which shards make up the whole; None where none do."""
    fitted = _fit(whole, shards)
    return fitted if fitted and agree(whole, _add(shards, fitted)) else None


def _is_led_by_own(
    evidence: Evidence,
    noise: Noise,
    regrouped: Trace,
    lost: float,
    kind: Kind | None,
) -> bool:
    """Whether gradients follow what each replica has for itself.

    That is the same for all of them in the first step. Later it matters which replica
    gets an example, even if each alone makes a sum of what it gets.
    """
    reference = evidence.reference
    for step in range(1, regrouped.steps):
        found = _take_parts(reference, regrouped, step)
        if found is None:
            continue
        margins = widen(find_margins(noise, found[0], step), found[0], lost)
        if not _is_free_of_groups(reference.get_shards(step), margins, *found, kind):
            return True
    return False


def _is_of_parts(
    evidence: Evidence, margins: Margins, whole: Places, step: int = 0
) -> bool:
    """Whether sums over examples and means of them make up the whole, each its way."""
    shards = evidence.reference.get_shards(step)
    joined: dict[tuple[str, int], Array] = {}
    for variable, call in whole:
        key = TraceKey(step=step, phase="local_gradient", variable=variable, call=call)
        parts = split_parts(evidence, key)
        if not parts:
            return False
        joined[variable, call] = join_parts(shards, parts)
    # Each part is made of values of a shard and of its double.
    return _agree(whole, joined, margins, 4 * evidence.reference.replicas)


def _agree(left: Places, right: Places, margins: Margins, shards: int) -> bool:
    """Whether all elements agree that are finite; the others tell nothing."""
    gaps = {place: left[place] - right[place] for place in margins}
    return all(
        measure_size(gap[np.isfinite(gap)]) <= 2 * shards * margins[place]
        for place, gap in gaps.items()
    )


def _add(parts: list[Places], weights: Sequence[float]) -> Places:
    return {
        place: np.asarray(
            sum(w * part[place] for w, part in zip(weights, parts, strict=True))
        )
        for place in parts[0]
    }


def _fit(whole: Places, shards: list[Places]) -> Sequence[float] | None:
    """One weight for each shard; None unless there is far more to fit than weights."""
    stacked = stack_scaled(
        (array, [shard[place] for shard in shards], size)
        for place, array in whole.items()
        if (size := measure_size(array)) > 0
    )
    if stacked is None or stacked[0].shape[0] < 4 * stacked[0].shape[1]:
        return None
    weights = solve_least_squares(*stacked, determined=False)
    return None if weights is None else list(map(float, weights))
