"""Step counters that go by updates which, as is told, are repeated or left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from distbench.compare.arrays.values import Array, densify
from distbench.compare.comparison import Judged
from distbench.evidence import Evidence
from distbench.trace import Phase, get_numbers
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


def _is_counted(evidence: Evidence, found: Finding, link: Judged) -> bool:
    """Whether a counter goes on by what a finding says that is done to an update."""
    key = link.comparison.key
    before = evidence.get_held(key) if key.phase == "iterations" else None
    if link.pair is None or before is None or found.step > key.step:
        return False
    base = densify(before)
    went, due = link.pair.observed - base, link.pair.expected - base
    if found.code == "nonfinite":
        return _is_left_out(went, due) and _is_spoilt(evidence, found, key.step)
    if found.code != "update-repeated" or found.ratio is None:
        return False
    return np.array_equal(went, found.ratio * due)


def _is_spoilt(evidence: Evidence, found: Finding, step: int) -> bool:
    """Whether what a finding tells of is not finite in a step, on any side.

    Where all replicas leave such a step out and no sum is seen, the own gradients tell.
    """
    phase = cast(Phase, found.phase)
    is_seen = any(
        key.variable in found.variables and not np.all(np.isfinite(get_numbers(value)))
        for trace in (evidence.observed, evidence.reference)
        for key, value in trace.select(step=step, phase=phase)
    )
    return is_seen or bool(evidence.observed.find_overflowing(step))


def _is_left_out(went: Array, due: Array) -> bool:
    """Whether the cluster takes a step that is to be left out, or the other way."""
    return not went.any() or not due.any()
