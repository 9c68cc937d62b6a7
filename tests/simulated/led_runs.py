"""Runs whose model has a moving mean of the data, led by all replicas or by some."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from evidence_changes import change_evidence
from training_simulator import Fault, observe

from distbench.compare.comparison import Comparison, compare_evidence
from distbench.compare.state.measured_noise import measure_noise
from distbench.evidence import Evidence
from distbench.split import shard_slices
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, VariableInfo
from distbench.trace.numbers import round_to

SHARDS = (7, 5, 4)
F = np.float32
MOVING = VariableInfo(
    path="moving",
    role="variable",
    shape=(3,),
    dtype="float32",
    trainable=False,
)
ALL = tuple(range(len(SHARDS)))
Total = Callable[[list[Any]], Any]


def add_up(data: Any) -> Any:
    return data.sum(axis=0) / 8


def average(data: Any) -> Any:
    return data.mean(axis=0)


def find_measure(counts: bool | None, rounded: str) -> Callable[[Any], Any]:
    """What one device makes of examples; see `lead`."""
    measure = add_up if counts else average
    return (lambda data: round_to(measure(data), rounded)) if rounded else measure


def lead(
    evidence: Evidence,
    weights: tuple[float, ...],
    *,
    known: bool,
    counts: bool | None = None,
    total: Total = sum,
    dtype: str = "float32",
    rounded: str = "",
) -> Evidence:
    """The same with a moving mean of the data, made of the shards' by weights.

    Args:
        evidence: Of a program.
        weights: What each replica's examples count on the cluster.
        known: Whether the whole batch of one device is the measure.
        counts: Whether it is a sum over the examples that is divided by a constant, as
            a shard with its examples twice tells; None if nobody ran one.
        total: How the cluster adds up what each replica's examples make.
        dtype: That of the moving mean.
        rounded: The dtype to which one device rounds what is added; empty if to none.
    """
    rng = np.random.default_rng(2)
    sizes = evidence.reference.shards
    reference, observed = dict(evidence.reference.values), {}
    observed.update(evidence.observed.values)
    twins = [dict(twin.values) for twin in evidence.twins]
    doubled: dict[TraceKey, Any] = {}

    info, kind = replace(MOVING, dtype=dtype), np.dtype(dtype).type
    measure = find_measure(counts, rounded)

    def put(into: dict[TraceKey, Any], step: int, value: Any, replica: int) -> None:
        key = TraceKey(step=step, phase="variable", variable="moving", replica=replica)
        into[key] = np.asarray(value, dtype)

    before = np.ones(3, dtype)
    put(reference, INITIAL, before, WHOLE)
    for replica in ALL:
        put(observed, INITIAL, before, replica)
    for step in range(evidence.observed.steps):
        data = rng.normal(size=(sum(sizes), 3)).astype(F).astype(dtype)
        means = [measure(data[part]) for part in shard_slices(sizes)]

        def move(mean: Any, before: Any = before) -> Any:
            return kind(0.75) * before + kind(0.25) * mean

        for replica, mean in enumerate(means):
            put(reference, step, move(mean), replica)
            if counts is not None:
                put(doubled, step, move((1 + counts) * mean), replica)
        seen = total([w * mean for w, mean in zip(weights, means, strict=True)])
        for replica in ALL:
            put(observed, step, move(seen), replica)
        for twin in twins:
            put(twin, step, move(measure(rng.permutation(data))), WHOLE)
        before = move(measure(data))
        put(reference, step, before, WHOLE)

    def join(trace: Trace, values: dict[TraceKey, Any]) -> Trace:
        notes = {**trace.notes, "narrowest": "float32"}
        variables = *trace.variables, info
        return replace(trace, variables=variables, values=values, notes=notes)

    return change_evidence(
        evidence,
        reference=join(evidence.reference, reference),
        observed=join(evidence.observed, observed),
        twins=tuple(map(join, evidence.twins, twins)),
        probes={"doubled": join(evidence.reference, doubled)} if doubled else {},
        known=evidence.measure.known if known else ("loss", "local_gradient"),
    )


def make_run(
    weights: tuple[float, ...],
    *,
    known: bool,
    counts: bool | None = None,
    total: Total = sum,
    dtype: str = "float32",
    rounded: str = "",
    **setup: Any,
) -> Evidence:
    evidence = observe(
        setup.pop("fault", Fault()),
        replicas=len(SHARDS),
        shards=SHARDS,
        steps=2,
        **{"shards_known": False, **setup},
    )
    return lead(
        evidence,
        weights,
        known=known,
        counts=counts,
        total=total,
        dtype=dtype,
        rounded=rounded,
    )


def list_led(evidence: Evidence) -> list[Comparison]:
    noise = measure_noise(evidence)
    compared = [judged.comparison for judged in compare_evidence(evidence, noise)]
    return [c for c in compared if c.relation == "led"]


BY_SIZE = tuple(size / sum(SHARDS) for size in SHARDS)
EVEN = (1 / 3, 1 / 3, 1 / 3)
ADDED = (1.0, 1.0, 1.0)
