"""State of which every replica holds its own part, in copies that are to be alike.

So does an accumulator of gradients that nobody aggregates: what the replicas hold adds
up to what one device has, and the program may add it up later. It trains as it should,
but a checkpoint saves one copy, and TensorFlow may read any. The same goes for a moving
average of the own gradients, in a slot that an optimizer hands on: each replica decays
its part, and so does one device the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from distbench.codes import CODES
from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME, are_near, are_same_factors, fit_ratio
from distbench.compare.comparison import Judged
from distbench.evidence import Evidence
from distbench.trace import (
    SUMMED,
    UPDATED,
    WHOLE,
    TraceKey,
    VariableInfo,
)
from distbench.trace.numbers import Array, are_equal, densify, measure_size
from distbench.verdict import Finding

_OF_OWN = ("missing-reduction", "slot-from-local-gradient")
"""What is said of state that follows from each replica's own gradients."""
_TOLD = 2
"""So many numbers of a sum tell that it is a multiple."""
_ADVICE = (
    "Its copies differ: each replica holds its own part of what one device has, and a "
    "checkpoint saves one of them. If they are added up later, make the variable with "
    "synchronization=tf.VariableSynchronization.ON_READ and an aggregation: it is then "
    "compared by its sum. Else add up before it is assigned."
)


def tell_own_copies(
    evidence: Evidence, broken: Sequence[Judged], findings: Sequence[Finding]
) -> list[Finding]:
    """Say so of state of which it is true, and leave out what only follows from it.

    A step starts from what one device has. Each replica then has the whole of it, and a
    sum over them holds it N times, which it never does where they go on by themselves.

    Args:
        evidence: What was observed and expected.
        broken: The wrong links.
        findings: What was found in them.
    """
    own = [f for f in findings if _holds_parts(evidence, f)]
    held = {variable: f.step for f in own for variable in f.variables}
    led = [
        f for f in findings if f not in own and _holds_copies(evidence, broken, f, held)
    ]
    # Of a slot the sums tell that it is handed on: an update may take it as it is.
    told = [f for f in own if f.phase == "variable" or led]
    return [_advise(f) if f in told else f for f in findings if f not in led]


def _advise(finding: Finding) -> Finding:
    told = finding.explanation.removesuffix(CODES[finding.code].fix)
    return replace(finding, explanation=f"{told}{_ADVICE}")


def _holds_parts(evidence: Evidence, finding: Finding) -> bool:
    """Whether the copies of all state of a finding differ and add up."""
    if finding.phase not in UPDATED or finding.code not in _OF_OWN:
        return False
    infos = evidence.observed.by_path
    return all(
        path in infos
        and infos[path].role == finding.phase
        and not (finding.phase == "variable" and infos[path].trainable)
        and infos[path].synchronised
        and _add_up(evidence, infos[path], finding.step)
        and all(
            _add_up(evidence, infos[path], step)
            or _are_alike(evidence, infos[path], step)
            for step in range(finding.step + 1, evidence.observed.steps)
        )
        for path in finding.variables
    )


def _add_up(evidence: Evidence, info: VariableInfo, step: int) -> bool:
    """Whether what replicas add in a step, or then hold, makes up one device's.

    Each begins with all that one device holds, and keeps the part of it that one device
    keeps, N - 1 times too much in all: of a moving average less than the whole.
    """
    due, parts = _find_copies(evidence, info, step)
    if due is None or _are_alike(evidence, info, step):
        return False
    before = evidence.get_before(step, info.role, info.path)
    start = np.zeros_like(due) if before is None else densify(before)
    excess = np.asarray(sum(parts) - due)
    most = len(parts) - 1
    times = [0.0, float(most)]
    fit = fit_ratio(excess, start) if np.count_nonzero(start) >= _TOLD else None
    if fit is not None and 0 < fit.ratio < most:
        times.append(fit.ratio)
    return any(are_near(excess, n * start, due, *parts) for n in times)


def _are_alike(evidence: Evidence, info: VariableInfo, step: int) -> bool:
    """Whether replicas hold the same, as after they have begun anew."""
    _, parts = _find_copies(evidence, info, step)
    return all(are_equal(part, parts[0]) for part in parts)


def _find_copies(
    evidence: Evidence, info: VariableInfo, step: int
) -> tuple[Array | None, list[Array]]:
    """What one device holds after a step, and what each replica does."""
    key = TraceKey(step=step, phase=info.role, variable=info.path, replica=WHOLE)
    due = evidence.reference.get(key)
    parts = [densify(value) for value in evidence.observed.get_replicas(key)]
    return None if due is None else densify(due), parts


def _holds_copies(
    evidence: Evidence,
    broken: Sequence[Judged],
    finding: Finding,
    held: Mapping[str, int],
) -> bool:
    """Whether wrong sums have too much of such state, all alike, and nothing else."""
    if evidence.tier == "free" or finding.phase not in SUMMED:
        return False
    pairs = [
        link.pair
        for link in broken
        if link.pair is not None
        and link.comparison.phase == finding.phase
        and link.comparison.variable in finding.variables
    ]
    found = [_list_multiples(evidence, pair, held) for pair in pairs]
    counts = [np.count_nonzero(pair.observed - pair.expected) for pair in pairs]
    if not pairs or max(counts) < _TOLD:
        return False
    return any(
        all(any(are_same_factors(ratio, one) for one in other) for other in found)
        for ratio in found[int(np.argmax(counts))]
    )


def _list_multiples(
    evidence: Evidence, pair: Pair, held: Mapping[str, int]
) -> list[float]:
    """Which multiples of what such state held before its step an error is."""
    error = np.asarray(pair.observed - pair.expected)
    roles = {info.path: info.role for info in evidence.observed.variables}
    found: list[float] = []
    for path, step in held.items():
        before = evidence.get_before(pair.key.step, roles[path], path)
        state = None if before is None else densify(before)
        if pair.key.step <= step or state is None or state.shape != error.shape:
            continue
        fit = fit_ratio(error, state)
        rest = error if fit is None else error - fit.ratio * state
        if fit is not None and measure_size(rest) <= SAME * measure_size(error):
            found.append(fit.ratio)
    return [ratio for ratio in found if ratio > 0]
