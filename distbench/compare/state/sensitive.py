"""Rules that mind the form in which a gradient or a variable comes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np

from distbench.compare.state.measured_noise import measure_noise
from distbench.evidence import Evidence
from distbench.trace import UPDATED, WHOLE, TraceKey, Value, Values
from distbench.trace.numbers import densify, measure_errors
from distbench.trace.shards import recut_shards


def find_row_sensitive(evidence: Evidence) -> tuple[str, ...]:
    """Variables whose rule gives something else if repeated rows are added up first.

    Replicas join their slices, and one device or a strategy may add up rows on the way:
    such a rule depends on who does.
    """
    distinct = evidence.probes.get("distinct")
    if distinct is None:
        return ()
    given = {key.at(WHOLE): value for key, value in distinct.select(step=0, replica=0)}
    return tuple(dict.fromkeys(key.variable for key in _find_other(evidence, given)))


def find_cut_sensitive(evidence: Evidence) -> tuple[TraceKey, ...]:
    """Where a step first leaves something else of a variable that is not in shards.

    A rule takes a shard for a variable of its own, so what it makes of a whole one,
    such as its norm, depends on how servers cut it. Whoever draws at random draws other
    numbers for shards, which tells nothing.
    """
    uncut = evidence.probes.get("uncut")
    if uncut is None or evidence.reference.draws:
        return ()
    shapes = {v.path: v.shape for v in evidence.reference.variables}
    given: dict[TraceKey, Value] = {}
    for step, phase in product(range(uncut.steps), UPDATED):
        found = uncut.select(step=step, phase=phase)
        whole = {key.variable: densify(value) for key, value in found}
        given |= {
            TraceKey(step=step, phase=phase, variable=path): value
            for path, value in recut_shards(whole, shapes).items()
        }
    others = _find_other(evidence, given)
    return tuple(key for key in others if key.step == others[0].step)


def _find_other(
    evidence: Evidence, given: Mapping[TraceKey, Value]
) -> tuple[TraceKey, ...]:
    """Where state is not the reference's, by more than noise."""
    asked = {(k.phase, k.variable) for k in given if k.phase in UPDATED}
    noise = measure_noise(
        replace(
            evidence,
            twins=tuple(
                replace(
                    twin,
                    values=Values(twin.values).keep(
                        lambda key: (key.phase, key.variable) in asked
                    ),
                )
                for twin in evidence.twins
                # In another order such a rule gives something else as well.
                if not twin.notes.get("permuted")
            ),
        )
    )
    found = []
    for key, value in given.items():
        expected = evidence.reference.get(key)
        if expected is None or key.phase not in UPDATED:
            continue
        error = measure_errors(densify(value), densify(expected))
        if np.any(error > noise.find_margin(key, densify(expected)).bound):
            found.append(key)
    return tuple(found)
