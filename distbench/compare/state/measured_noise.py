"""Measures noise: by how much twins, and shards run again, differ on one device."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from distbench.compare.arrays.aligned import align_values
from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.likeness import find_half
from distbench.compare.arrays.noise import Limits, Noise, Whole
from distbench.compare.arrays.spoilt import list_spoilt
from distbench.compare.state.cancelled import find_cancelled
from distbench.compare.state.joined import bound_narrow_sum, find_alike
from distbench.compare.state.leading import is_trained
from distbench.compare.state.led_by_rounding import find_led_by_rounding
from distbench.compare.state.order import (
    depends_on_order,
    is_reduced_by_order,
    list_kept_in_order,
)
from distbench.compare.state.samples import Samples, add_sample, limit_pools
from distbench.evidence import Evidence
from distbench.trace import (
    COMPUTED,
    GRADIENTS,
    STATE,
    WHOLE,
    Phase,
    Trace,
    TraceKey,
    Values,
)
from distbench.trace.numbers import (
    Array,
    densify,
    measure_distance,
    measure_finite,
    measure_norm,
    name_value,
)

KERNEL_ROUNDINGS = 16
"""In units of the largest element of what an update leaves: several times more than was
measured of a GPU's kernels against a CPU's, for square roots and quotients of dense
updates and for the sums of a sparse one's repeated rows. See docs/tolerances.md."""


def measure_noise(evidence: Evidence, rounded: Sequence[Trace] = ()) -> Noise:
    """Compare each twin with the reference, value by value.

    Args:
        evidence: What was seen, with its twins.
        rounded: Further twins, moved by what a narrower dtype loses. Whether an order
            matters they do not tell: near a kink, as of a ReLU, one of them now and
            then is led another way.
    """
    wholes = _measure_wholes(evidence, rounded)
    samples: dict[bool, Samples] = {True: {}, False: {}}
    turned = [twin for twin in rounded if _is_permuted(twin)]
    for twin in (*evidence.twins, *(t for t in rounded if not _is_permuted(t))):
        _compare_twin(evidence, twin, samples[_is_permuted(twin)], wholes)
    # In a free run noise grows from step to step.
    limit_all = partial(limit_pools, narrowest=evidence.narrowest)
    limit = partial(limit_all, pooled=evidence.tier == "bounded")
    limits = limit(samples[False])
    ordered = bool(samples[False]) and depends_on_order(samples[True], limits)
    if not ordered and not is_reduced_by_order(samples[True], limits):
        queues = list_kept_in_order(evidence, samples[True], limits)
        for twin in turned:
            _compare_twin(evidence, twin, samples[True], wholes)
        for pool, found in samples[True].items():
            if pool not in queues:
                samples[False].setdefault(pool, []).extend(found)
        limits = limit(samples[False])
    joined = _add_joined(evidence, samples[False], wholes, limits)
    wider = {
        place: (max(found[0], limits.get(place, found)[0]), found[1])
        for place, found in limit(joined).items()
    }
    alone, sizes = _compare_doubled(evidence)
    return Noise(
        exact=evidence.tier == "exact",
        pooled=evidence.tier == "bounded",
        ordered=ordered,
        limits={**limits, **wider},
        wholes=wholes,
        repeated=limit_all(_compare_runs(evidence.reference, *evidence.reruns)),
        alone=limit_all(alone),
        alone_sizes=sizes,
        compiled=limit_all(_compare_compiled(evidence)),
        kernels=_list_kernels(evidence) if evidence.subject.other_kernels else {},
        starts=_list_kernels(evidence) if evidence.subject.other_start else {},
        rounded=limit(_compare_runs(evidence.reference, *_list_moved(evidence, STATE))),
        led=limit(_compare_runs(evidence.reference, *evidence.moved)),
    )


def measure_rounded(evidence: Evidence, spoilt: frozenset[int]) -> Noise | None:
    """The noise of losses and gradients in a narrower dtype, where it was asked for.

    Steps in which something overflows tell nothing of it. None where it is not known,
    or where replicas overflow in steps in which one device does not: whether their
    parts do follows from no rounding.

    Args:
        evidence: What was seen.
        spoilt: Steps in which one device overflows; see `find_spoilt`.
    """
    moved = _list_moved(evidence, ("loss", *GRADIENTS))
    if not moved or not list_spoilt(evidence.observed) <= spoilt:
        return None
    steps = spoilt.union(*map(list_spoilt, moved))
    finite = [
        replace(t, values=Values(t.values).keep(lambda key: key.step not in steps))
        for t in moved
    ]
    noise = measure_noise(evidence, finite)
    return None if noise.ordered else noise


def _list_moved(evidence: Evidence, phases: Collection[Phase]) -> list[Trace]:
    """Some phases of the runs that were moved by a rounding to a narrower dtype."""
    return [
        replace(
            trace, values=Values(trace.values).keep(lambda key: key.phase in phases)
        )
        for name, trace in evidence.probes.items()
        if name.startswith("rounded-")
    ]


def _compare_doubled(evidence: Evidence) -> tuple[Samples, dict[TraceKey, float]]:
    """Shards with each example twice, against the same or twice as much of them once.

    What belongs to a sum doubles and what belongs to a mean stays, but for rounding;
    of what is made of both, nothing is learnt. Beside that the sizes of the shards.
    """
    doubled = evidence.probes.get("doubled")
    samples: Samples = {}
    sizes: dict[TraceKey, float] = {}
    if doubled is None or "once" in evidence.probes:
        return samples, sizes
    for key, value in doubled.values.items():
        base = evidence.reference.get(key)
        if base is None or key.phase not in COMPUTED or key.replica == WHOLE:
            continue
        once, twice = (a.total for a in align_values((base, value)))
        if once.shape != twice.shape or not _is_finite(once, twice):
            continue
        due = min((once, 2 * once), key=lambda due: measure_distance(twice, due))
        size = measure_finite(due)
        dtype = name_value(base)
        if measure_distance(twice, due) <= find_half(dtype) * size:
            add_sample(samples, key, base, due, twice, size)
            sizes[key] = measure_finite(once)
    return samples, sizes


def _is_finite(*arrays: Array) -> bool:
    return all(bool(np.isfinite(array).all()) for array in arrays)


def _list_kernels(evidence: Evidence) -> dict[str, float]:
    """By how many roundings each variable may differ that other kernels made."""
    dtypes = evidence.observed.dtypes
    return {path: KERNEL_ROUNDINGS * find_roundoff(d) for path, d in dtypes.items()}


def _compare_compiled(evidence: Evidence) -> Samples:
    replay = evidence.fed.replays.get("reduced_gradient")
    if replay is None or evidence.fed.op_by_op is None:
        return {}
    return _compare_runs(replay, evidence.fed.op_by_op)


def _compare_runs(first: Trace, *again: Trace) -> Samples:
    samples: Samples = {}
    for rerun in again:
        for key, value in rerun.values.items():
            base = first.get(key)
            if base is None or key.phase == "iterations":
                continue
            expected, seen = (a.total for a in align_values((base, value)))
            if expected.shape == seen.shape:
                size = measure_finite(expected)
                add_sample(samples, key, base, expected, seen, size)
    return samples


def _is_permuted(twin: Trace) -> bool:
    return bool(twin.notes.get("permuted", False))


def _measure_wholes(
    evidence: Evidence, rounded: Sequence[Trace]
) -> dict[TraceKey, Whole]:
    """Sizes of what twins tell of, and runs that are rounded in a narrower dtype."""
    reference, twins = evidence.reference, (*evidence.twins, *rounded)
    found: dict[TraceKey, Whole] = {}
    for key in chain.from_iterable(twin.values for twin in twins):
        if key in found or key.phase == "iterations":
            continue
        base = reference.get(key)
        if base is not None:
            total = align_values((base,))[0].total
            found[key] = Whole(size=measure_finite(total), norm=measure_norm(total))
    with np.errstate(invalid="ignore"):  # distances of what is not finite are NaN
        cancelled = find_cancelled(reference, twins, found, rounded, evidence.narrowest)
        led = find_led_by_rounding(evidence, found, cancelled)
    return {**found, **cancelled, **led}


def _compare_twin(
    evidence: Evidence,
    twin: Trace,
    samples: Samples,
    wholes: Mapping[TraceKey, Whole],
) -> None:
    for key, value in twin.values.items():
        whole = wholes.get(key)
        if whole is None or not math.isfinite(whole.norm):
            continue
        base = evidence.reference.values[key]
        expected, seen = (a.total for a in align_values((base, value)))
        if expected.shape == seen.shape:
            size = whole.size / whole.spread
            add_sample(samples, key, base, expected, seen, size)


def _add_joined(
    evidence: Evidence,
    samples: Samples,
    wholes: Mapping[TraceKey, Whole],
    limits: Limits,
) -> Samples:
    """Samples of what the examples lead, with those of it as shards make it.

    What is left to the whole batch's is rounding. Twins repeat what is added and taken
    away again, and shards do not; see `joined`. Where they do they prove nothing.
    If that is more than twins show of state that is wider than what a step computes in,
    it may be a sum in fewer digits: these may leave little by chance, so all that they
    may lose is added.
    """
    more: Samples = {}
    shared = {v.path for v in evidence.reference.variables if v.synchronised}
    for key, whole in wholes.items():
        if key.phase != "variable" or key.variable not in shared:
            continue
        if is_trained(evidence, key.variable):
            continue
        joined = find_alike(evidence, key)
        if joined is not None:
            value = evidence.reference.values[key]
            due, dtype = densify(value), name_value(value)
            pool = key.phase, key.variable, key.call
            shown = limits.get((pool, key.step), (0.0, 0.0))[0] * whole.size
            is_more = measure_distance(joined, due) > shown
            lost = bound_narrow_sum(evidence, key, dtype) if is_more else 0.0
            add_sample(more, key, value, due, joined, whole.size, lost)
    return {pool: [*samples.get(pool, ()), *found] for pool, found in more.items()}
