"""Confirms causes by intervention: with the right value put in, is all right then?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distbench.compare.arrays.copies import are_same
from distbench.diagnose.judge import judge
from distbench.diagnose.readings.overflowing import leave_steps, list_parted
from distbench.diagnose.stages.beside import goes_before
from distbench.diagnose.stages.of_losses import is_of_losses
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, PHASES, WHOLE, Phase
from distbench.verdict import Finding

PUT_IN: dict[str, Phase] = {
    "loss": "reduced_gradient",
    "local_gradient": "reduced_gradient",
    "reduced_gradient": "reduced_gradient",
    "applied_gradient": "applied_gradient",
}
"""Where the right gradient can be put in for a finding in a phase.

A wrong loss is corrected by the sum that it should have led to. What is found in the
state itself has no later place in the step where its right value could be put in.
"""
_WITHOUT = (
    "loss-misreported",
    "metric-wrong",
    "examples-repeated",
    "examples-missed",
    "randomness-shared",
    "raises",
    "collective-mismatch",
    "unexplained",
)
"""Findings that are about no gradient, or that name no cause to confirm."""


def find_correction(findings: Sequence[Finding], evidence: Evidence) -> Phase | None:
    """Where the first finding's right value can be put in; None where it cannot be.

    Args:
        findings: Of a run that failed, in causal order.
        evidence: What they were found in.
    """
    first = findings[0]
    phase = PUT_IN.get(first.phase)
    if phase is None or first.code in _WITHOUT or phase not in evidence.measure.known:
        return None
    if first.step in list_parted(evidence):
        return None  # one device does not say what is right there
    due, handed = (
        {key.variable for key, _ in trace.select(step=first.step, phase=phase)}
        for trace in (evidence.reference, evidence.observed)
    )
    # What the cluster's optimizer was never handed cannot be put in its place.
    return phase if due and not (due - handed) & set(first.variables) else None


def confirm_first(
    findings: Sequence[Finding],
    phase: Phase,
    corrected: Evidence,
    seen: Evidence | None = None,
) -> tuple[Finding, ...]:
    """Say of the first finding whether its correction repairs the outcome.

    What is wrong in the corrected run as well is a fault of its own, which the first
    one hid; it is added.

    Args:
        findings: Of a run that failed, in causal order.
        phase: Where the right value was put in.
        corrected: What the cluster left then.
        seen: What the findings were found in, if it is to be told what the right value
            does not reach.
    """
    first = findings[0]
    if seen is not None:
        # What goes before the right value is made of the same gradients as it was.
        corrected = replace(
            leave_steps(corrected, list_parted(seen)),
            fed=replace(corrected.fed, sums=seen.fed.sums),
            subject=replace(
                corrected.subject,
                kept=seen.subject.kept,
                steered=seen.subject.steered,
            ),
        )
    left = judge(corrected)
    known = {(f.code, f.phase, frozenset(f.variables)) for f in findings}
    # A metric fed with a wrong loss is as wrong where only the gradient was put right.
    is_untouched = phase != first.phase
    untouched = _WITHOUT if is_untouched else ()
    hidden = [
        replace(found, explanation=f"With this corrected: {found.explanation}")
        for found in left.findings
        if not found.warning
        and found.code not in untouched
        and (found.code, found.phase, frozenset(found.variables)) not in known
        and not (is_untouched and is_of_losses(corrected, found))
        and not (seen is not None and goes_before(found, first, corrected, seen))
    ]
    # What was put in corrects all that is wrong up to there, not this cause alone.
    is_computed = first.phase in COMPUTED
    is_between = is_computed and seen is not None and _changes_before_sum(seen)
    others = is_between or any(
        not other.warning and PHASES.index(other.phase) <= PHASES.index(phase)
        for other in findings[1:]
    )
    confirmed = None if others and not hidden else not hidden
    return (replace(first, confirmed=confirmed), *findings[1:], *hidden)


def _changes_before_sum(evidence: Evidence) -> bool:
    """Whether one device makes something else of gradients before they are summed.

    What it makes of each replica's own is known where a state does not follow as well.
    """
    reference = evidence.reference
    if evidence.fed.apart is None:
        return False
    return any(
        handed is None or not are_same(value, handed)
        for key, value in reference.select(phase="local_gradient", replica=WHOLE)
        for handed in (reference.get(replace(key, phase="reduced_gradient")),)
    )
