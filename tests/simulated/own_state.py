"""Simulated programs that keep state of the replicas' own as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from training_simulator import RIGHT, Fault, observe

from distbench.compare.comparison import Comparison, compare_evidence
from distbench.evidence import Evidence, Tier
from distbench.split import shard_slices
from distbench.trace import INITIAL, WHOLE, TraceKey, VariableInfo

SHARDS = (7, 5, 4)
EXAMPLES = sum(SHARDS)
STEPS = 3
F = np.float32


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an update runs; on one device it is replica 0 of 1."""

    replica: int = 0
    replicas: int = 1
    step: int = 0


State = dict[str, np.ndarray]
Update = Callable[[State, np.ndarray, Place], State]
"""State after a step from that before it and from the losses of the examples [n]."""


def add_totals(
    evidence: Evidence,
    start: Mapping[str, Any],
    update: Update,
    *,
    adds_up: bool = True,
    seed: int = 0,
) -> Evidence:
    """The same evidence of a program that keeps state of the replicas' own as well."""
    rng = np.random.default_rng(seed)
    replicas = evidence.observed.replicas
    initial = {name: np.array(value) for name, value in start.items()}
    values: dict[str, dict[TraceKey, Any]] = {"reference": {}, "observed": {}}
    twins: list[dict[TraceKey, Any]] = [{} for _ in evidence.twins]

    def put(into: dict[TraceKey, Any], step: int, state: State, replica: int) -> None:
        for name, value in state.items():
            key = TraceKey(step=step, phase="variable", variable=name, replica=replica)
            into[key] = np.asarray(value, initial[name].dtype)

    put(values["reference"], INITIAL, initial, WHOLE)
    whole, own, shards = initial, [initial] * replicas, [initial] * replicas
    for replica in range(replicas):
        put(values["observed"], INITIAL, initial, replica)
    for step in range(evidence.observed.steps):
        losses = rng.lognormal(size=sum(evidence.reference.shards)).astype(F)
        parts = [losses[part] for part in shard_slices(evidence.reference.shards)]
        alone = Place(step=step)
        for twin in twins:
            order = rng.permutation(len(losses))
            near = {name: move(value, rng) for name, value in whole.items()}
            put(twin, step, update(near, move(losses, rng)[order], alone), WHOLE)
        for replica, part in enumerate(parts):
            shards[replica] = update(shards[replica], part, alone)
            put(values["reference"], step, shards[replica], replica)
            place = Place(replica=replica, replicas=replicas, step=step)
            own[replica] = update(own[replica], part, place)
            put(values["observed"], step, own[replica], replica)
        whole = update(whole, losses, alone)
        put(values["reference"], step, whole, WHOLE)
    infos = tuple(
        VariableInfo(
            path=name,
            role="variable",
            shape=value.shape,
            dtype=value.dtype.name,
            synchronised=False,
            trainable=False,
            adds_up=adds_up,
        )
        for name, value in initial.items()
    )

    def join(trace: Any, more: dict[TraceKey, Any]) -> Any:
        return replace(
            trace,
            variables=(*trace.variables, *infos),
            values={**trace.values, **more},
        )

    return replace(
        evidence,
        reference=join(evidence.reference, values["reference"]),
        observed=join(evidence.observed, values["observed"]),
        twins=tuple(map(join, evidence.twins, twins)),
    )


def move(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """By one rounding, up or down."""
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return array
    signs = rng.choice([-0.5, 0.5], size=array.shape) * np.finfo(array.dtype).eps
    return (array * (1 + signs)).astype(array.dtype)


def make_run(
    start: Mapping[str, Any],
    update: Update,
    *,
    shards: tuple[int, ...] = SHARDS,
    tier: Tier = "bounded",
    fault: Fault = RIGHT,
    adds_up: bool = True,
) -> Evidence:
    evidence = observe(
        fault,
        replicas=len(shards),
        shards=shards,
        steps=STEPS,
        tier=tier,
        shards_known=False,
        loss_reduction="sum",
    )
    return add_totals(evidence, start, update, adds_up=adds_up)


def list_totals(evidence: Evidence) -> list[Comparison]:
    compared = [judged.comparison for judged in compare_evidence(evidence)]
    return [c for c in compared if c.relation == "total"]


METRIC = {"total": F(0), "count": F(0)}
VECTOR = {"kept": np.zeros(4, F)}


def meter(state: State, losses: np.ndarray, place: Place) -> State:
    return {
        "total": state["total"] + losses.sum(dtype=F),
        "count": state["count"] + F(len(losses)),
    }


def meter_shares(state: State, losses: np.ndarray, place: Place) -> State:
    """What tutorials do: N times the share, and one update counted."""
    share = losses.sum(dtype=F) / F(EXAMPLES)
    return {
        "total": state["total"] + share * F(place.replicas),
        "count": state["count"] + F(1),
    }


def meter_times_n(state: State, losses: np.ndarray, place: Place) -> State:
    return meter(state, losses * F(place.replicas), place)


def spread(losses: np.ndarray) -> np.ndarray:
    """A gradient of four numbers under a fixed global size."""
    return (losses.sum(dtype=F) / F(EXAMPLES) * np.arange(1, 5, dtype=F)).astype(F)


def average(state: State, losses: np.ndarray, place: Place) -> State:
    mean = np.resize(losses.mean(dtype=F), 4)
    return {"kept": F(0.9) * state["kept"] + F(0.1) * mean}
