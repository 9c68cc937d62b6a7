"""Gradients that are paired with the variables of others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.names import name_replicas
from distbench.trace import GRADIENTS, SUMMED, WHOLE
from distbench.trace.numbers import Array, densify, measure_norm


def explain_by_pairing(context: Context) -> Iterator[Hypothesis]:
    """Another variable's gradient, on all replicas or on some."""
    if context.phase not in GRADIENTS:
        return
    everyone = tuple(range(context.replicas))
    groups = [everyone]
    if context.phase in SUMMED and len(everyone) > 1:
        groups += list_groups(len(everyone))
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


def list_groups(replicas: int) -> list[tuple[int, ...]]:
    """Each replica alone, and all but one where those are more."""
    everyone = range(replicas)
    found: list[tuple[int, ...]] = [(one,) for one in everyone]
    if replicas > 2:
        found += [tuple(r for r in everyone if r != one) for one in everyone]
    return found


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
        ways = [_take_partner]
        if not is_local and len(group) == context.replicas:
            ways.append(_take_reduced)
        other = context.move_to(case, path)
        for way in ways:
            take = partial(way, context, other, path, group)
            place = other.key if is_local else other.key.at(WHOLE)
            norm = context.work_out(
                (way, place.step, place.call, place.replica, path, group),
                partial(_measure, take),
            )
            # Nearer than its norm no value is. To read the gradients of all others
            # takes a large model's diagnosis long.
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


def _take_reduced(
    context: Context, case: Pair, path: str, group: tuple[int, ...]
) -> Array:
    """What one device makes of a variable's sum before it is handed over.

    A sum that changes its place is treated further there, as by a centralisation.
    """
    del group
    value = context.evidence.reference.get(replace(case.key.at(WHOLE), variable=path))
    return np.zeros(0) if value is None else densify(value)
