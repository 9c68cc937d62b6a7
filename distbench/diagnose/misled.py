"""What is wrong with losses only because their step has assigned a wrong statistic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from distbench.compare.comparison import Judged
from distbench.diagnose.context import take_rows
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, WHOLE
from distbench.verdict import Finding

_FEW = 4
"""So many bounds may lie between two values, each within one of what it should be."""


def leave_out_misled_losses(
    evidence: Evidence, broken: Sequence[Judged], findings: Sequence[Finding]
) -> list[Finding]:
    """Without findings of losses and gradients that follow from state of their step.

    One device has the same, where it is assigned what the replicas hold of that state.
    A statistic is there before the loss then, and what is wrong with it says all.

    Args:
        evidence: What was observed and expected.
        broken: The wrong links.
        findings: What was found in them.
    """
    held = evidence.fed.held
    if held is None:
        return list(findings)
    paths = set(cast(Sequence[str], held.notes["held"]))
    told = [
        f.step for f in findings if f.phase == "variable" and paths & {*f.variables}
    ]
    links = [j for j in broken if j.comparison.phase in COMPUTED]
    if not told or not all(_follows(evidence, link) for link in links):
        return list(findings)
    first = min(told)
    return [f for f in findings if f.phase not in COMPUTED or f.step < first]


def _follows(evidence: Evidence, link: Judged) -> bool:
    """Whether one device has the same from what the replicas hold."""
    pair, held = link.pair, evidence.fed.held
    value = None if pair is None or held is None else held.get(pair.key)
    if pair is None or value is None or pair.key.replica != WHOLE:
        return False
    due = take_rows(value, pair)
    if due.shape != pair.observed.shape:
        return False
    gap = np.abs(pair.observed - due)
    return bool(np.all(gap <= _FEW * np.asarray(pair.margin.bound)))
