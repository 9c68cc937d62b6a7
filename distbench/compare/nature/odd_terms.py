"""A loss whose terms grow each in a way of its own as examples are repeated.

One device has differentiated each of them alone. What is a mean over the examples, or
comes to rest as they are repeated, is told from what is a sum. Of a term of which
nobody can tell, as a norm of all outputs, it is observed what it counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.least_squares import fit_all
from distbench.compare.arrays.noise import Noise
from distbench.compare.arrays.ratio import SAME, are_near
from distbench.compare.nature.doubled import (
    AGAIN,
    PLAIN,
    REPEATED,
    Kind,
    Margins,
    Places,
    find_kind,
    find_limit,
    list_repeated,
    take_gradients,
)
from distbench.compare.nature.lost import find_margins, measure_lost
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, WHOLE, Trace, Values
from distbench.trace.numbers import densify, measure_size


def settle_terms(evidence: Evidence, noise: Noise) -> Evidence:
    """With what repeated shards would give if each term were plainly a sum, or a mean.

    Unchanged where nobody asked for the terms, no share of any of them is known, or one
    tells by how it falls that it is neither; nor is it where a narrow dtype hides how
    gradients grow, or replicas count together.
    """
    terms = _list_terms(evidence.probes)
    if not terms or measure_lost(evidence) or evidence.observed.notes.get("exchange"):
        return evidence
    kinds = [_find_kind(evidence, noise, number) for number in range(len(terms))]
    if not any(kinds) or any(
        _is_divided_again(evidence, noise, number) for number in range(len(terms))
    ):
        return evidence
    counts = _count_unknown(evidence, terms, kinds)
    if counts is None:
        return evidence
    reference = Values(dict(evidence.reference.values))
    repeated = {name: Values(dict(evidence.probes[name].values)) for name in REPEATED}
    for key in [key for key in reference if key.phase in COMPUTED]:
        if key.replica == WHOLE:
            continue
        found = [term.get(key) for term in terms]
        parts = [densify(value) for value in found if value is not None]
        due = densify(reference[key])
        if len(parts) < len(terms) or not are_near(due, np.asarray(sum(parts)), due):
            # What is made of something else, as a loss that is returned, stays open.
            for values in repeated.values():
                values.pop(key, None)
            continue
        pairs = zip(counts[key.step, key.replica], parts, strict=True)
        own = [n * part for n, part in pairs]
        sums = [p for p, kind in zip(own, kinds, strict=True) if kind != "mean"]
        reference[key] = np.asarray(sum(own))
        for name, times in REPEATED.items():
            if key in repeated[name]:
                more = np.zeros_like(due) + sum(sums)
                repeated[name][key] = np.asarray(sum(own) + (times - 1) * more)
    probes = {
        name: replace(evidence.probes[name], values=values)
        for name, values in repeated.items()
    }
    # What these have by definition needs no proof.
    others = {name: p for name, p in evidence.probes.items() if name != AGAIN}
    return replace(
        evidence,
        reference=replace(evidence.reference, values=reference),
        probes={**others, **probes},
    )


def _count_unknown(
    evidence: Evidence, terms: Sequence[Trace], kinds: Sequence[Kind | None]
) -> Mapping[tuple[int, int], Sequence[float]] | None:
    """How often each replica has each term of its shard, where that is not known.

    By step and replica; 1 of what is known. Of the others it is fitted to what was
    observed, of which the terms must leave nothing: what they should count nobody says.
    None where they do not fit.
    """
    counts: dict[tuple[int, int], Sequence[float]] = {}
    for step in range(evidence.reference.steps):
        for replica in range(evidence.reference.replicas):
            counts[step, replica] = [1.0] * len(kinds)
            if all(kinds):
                continue
            seen = take_gradients(evidence.observed, replica, step)
            own = [take_gradients(term, replica, step) for term in terms]
            if not seen or any(set(part) != set(seen) for part in own):
                return None
            fitted = _fit(seen, own)
            if fitted is None:
                return None
            counts[step, replica] = [
                1.0 if kind else n for kind, n in zip(kinds, fitted, strict=True)
            ]
    return counts


def _fit(seen: Places, parts: Sequence[Places]) -> list[float] | None:
    """How often gradients have each part; None where that leaves something."""
    columns = [np.concatenate([p[place].ravel() for place in seen]) for p in parts]
    target = np.concatenate([value.ravel() for value in seen.values()])
    if len(target) < 4 * len(parts):
        return None
    fitted = fit_all(np.stack(columns, axis=1), target, SAME)
    return None if fitted is None else [float(n) for n in fitted]


def _list_terms(probes: Mapping[str, Trace]) -> list[Trace]:
    names = [name for name in probes if name.startswith("term-")]
    return [probes[f"term-{n}"] for n in range(len(names)) if f"term-{n}" in probes]


def _find_kind(evidence: Evidence, noise: Noise, number: int) -> Kind | None:
    """What a term is by itself, as `find_kind` and `find_limit` have it of a loss."""
    alone = _take_alone(evidence, number)
    term = alone.reference
    whole = take_gradients(term, WHOLE)
    shards = [take_gradients(term, r) for r in range(term.replicas)]
    if not whole or any(set(shard) != set(whole) for shard in shards):
        return None
    margins = _find_margins(evidence, noise, whole)
    kind = find_kind(alone, noise, margins, shards)
    return kind or find_limit(alone, margins, whole, shards)


def _is_divided_again(evidence: Evidence, noise: Noise, number: int) -> bool:
    """Whether a term has 1/k, or 1/k^2, of its examples k times.

    So does what is divided by their number more than once. It comes to rest at 0, and
    is no mean of what it has for the examples.
    """
    alone = _take_alone(evidence, number)
    replica = int(np.argmax(alone.reference.shards))
    shard = take_gradients(alone.reference, replica)
    repeated = list_repeated(alone, shard, replica)
    if not repeated:
        return False
    margins = _find_margins(evidence, noise, shard)
    return any(measure_size(shard[p]) > PLAIN * margins[p] for p in shard) and any(
        all(
            measure_size(more[p] - shard[p] / times**power) <= 4 * margins[p]
            for more, times in zip(repeated[1:], REPEATED.values(), strict=True)
            for p in shard
        )
        for power in (1, 2)
    )


def _take_alone(evidence: Evidence, number: int) -> Evidence:
    """With a term in the place of the loss."""
    return replace(
        evidence,
        reference=evidence.probes[f"term-{number}"],
        probes={name: evidence.probes[f"term-{number}-{name}"] for name in REPEATED},
    )


def _find_margins(evidence: Evidence, noise: Noise, term: Places) -> Margins:
    """As far as the whole loss rounds: a term may be a small part of it."""
    due = {**term, **take_gradients(evidence.reference, WHOLE)}
    return find_margins(noise, {place: due[place] for place in term}, 0)
