"""Step counters that go by updates which, as is told, are repeated or left out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from distbench.compare.arrays.copies import are_same
from distbench.compare.comparison import Judged
from distbench.evidence import Evidence
from distbench.trace import WHOLE, Phase, TraceKey, get_numbers
from distbench.trace.numbers import Array, densify
from distbench.verdict import Finding


def leave_out_counted(
    evidence: Evidence, findings: Sequence[Finding], links: Sequence[Judged]
) -> list[Judged]:
    """Without counters that count what findings tell of.

    Of several optimizers each has a counter of its own, and another one may be wrong.

    Args:
        evidence: What the findings are of.
        findings: What is told of all phases before.
        links: Wrong values of a phase.
    """
    return [
        link
        for link in links
        if not any(_is_counted(evidence, found, link) for found in findings)
    ]


def list_counted(evidence: Evidence, counter: str) -> Collection[str] | None:
    """What the optimizer of a counter is given gradients of; None if nobody knows.

    Args:
        evidence: What was seen.
        counter: Its path, or that of another variable, of which nobody does.
    """
    noted = cast(dict[str, list[str]], evidence.reference.notes.get("counted", {}))
    return noted.get(counter)


def _is_counted(evidence: Evidence, found: Finding, link: Judged) -> bool:
    """Whether a counter goes on by what a finding says that is done to an update."""
    key = link.comparison.key
    before = evidence.get_held(key) if key.phase == "iterations" else None
    if link.pair is None or before is None or found.step > key.step:
        return False
    base = densify(before)
    went, due = link.pair.observed - base, link.pair.expected - base
    if found.code == "nonfinite":
        return _is_left_out(went, due) and _goes_by(evidence, found, key, went)
    if found.code != "update-repeated" or found.ratio is None:
        return False
    return np.array_equal(went, found.ratio * due)


def _is_left_out(went: Array, due: Array) -> bool:
    """Whether the cluster takes a step that is to be left out, or the other way."""
    return not went.any() or not due.any()


def _goes_by(evidence: Evidence, found: Finding, key: TraceKey, went: Array) -> bool:
    """Whether an update that a counter counts is led by what a finding tells of.

    What its own optimizer is given is spoilt. Or it stands still where all that this
    one trains does: a step may leave all updates out where one is spoilt.
    """
    own = list_counted(evidence, key.variable)
    if own is None or _is_spoilt(evidence, found, key.step, own):
        return _is_spoilt(evidence, found, key.step, own)
    return _is_spoilt(evidence, found, key.step) and _stand_still(
        evidence, own, key if not went.any() else key.at(WHOLE)
    )


def _is_spoilt(
    evidence: Evidence, found: Finding, step: int, own: Collection[str] | None = None
) -> bool:
    """Whether what a finding tells of is not finite in a step, on any side.

    Where all replicas leave such a step out and no sum is seen, the own gradients tell.

    Args:
        evidence: What was seen.
        found: The finding.
        step: Its number.
        own: Paths of the variables to ask; None asks all.
    """
    phase = cast(Phase, found.phase)
    is_seen = any(
        key.variable in found.variables
        and (own is None or key.variable in own)
        and not np.all(np.isfinite(get_numbers(value)))
        for trace in (evidence.observed, evidence.reference)
        for key, value in trace.select(step=step, phase=phase)
    )
    return is_seen or bool(evidence.observed.find_overflowing(step, own))


def _stand_still(evidence: Evidence, own: Collection[str], key: TraceKey) -> bool:
    """Whether variables are in a step what they were, where a counter is."""
    trace = evidence.reference if key.replica == WHOLE else evidence.observed
    places = [replace(key, phase="variable", variable=path) for path in own]
    pairs = [(trace.get(place), evidence.get_held(place)) for place in places]
    return all(
        after is not None and before is not None and are_same(after, before)
        for after, before in pairs
    )
